"""How Sphinx reads the pages that build.py has put together; run by `make site`."""

project = "veilsum"
author = "the veilsum authors"
root_doc = "README"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns: list[str] = []

myst_heading_anchors = 4
"""Headings are linked to by GitHub's names: `guide.md#10-as-services`."""
myst_enable_extensions: list[str] = []
suppress_warnings = [
    # Pages begin their sections where they like: some have a title and then third-level headings.
    "myst.header",
]

html_theme = "furo"
html_title = "veilsum"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"footer_icons": []}
pygments_style = "default"
