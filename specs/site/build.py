"""Build the documentation site: every page of the repository, with links between them, from README on.

    python specs/site/build.py TARGET

Pages lie in the site where they lie in the repository, so that their links are the same in both. Three things are
added on the way: a page for each folder that is linked to, a page for each notebook, and the table of contents, in the
order of specs/README.md. Whatever Sphinx warns of is an error, and no page loads anything from elsewhere.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FIRST = "README.md"
BESIDE = (FIRST, "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE")
SPECS = Path("specs")
LISTING = "README.md"
_LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(\s*```)(mermaid|hex)$", re.MULTILINE)
"""Code that Sphinx cannot colour; diagrams stand as they are written, since drawing them would take a script."""
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def build(target: Path) -> int:
    """Put the pages together and let Sphinx make the site; the exit code is that of Sphinx."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        collect(source)
        shutil.rmtree(target, ignore_errors=True)
        sphinx = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", str(HERE)]
        done = subprocess.run([*sphinx, str(source), str(target)], check=False)  # noqa: S603 - our own command
    if done.returncode == 0:
        shutil.copyfile(target / "README.html", target / "index.html")
        shutil.rmtree(target / ".doctrees", ignore_errors=True)
        sys.stdout.write(f"{target / 'index.html'}\n")
    return done.returncode


def collect(source: Path) -> None:
    """The repository's pages, and what is added to them."""
    for name in BESIDE:
        shutil.copy(ROOT / name, source / name)
    ignored = shutil.ignore_patterns("site", "__pycache__", ".ipynb_checkpoints")
    shutil.copytree(ROOT / SPECS, source / SPECS, ignore=ignored)
    for notebook in sorted(source.rglob("*.ipynb")):
        notebook.with_suffix(".md").write_text(page_of(notebook), encoding="utf-8")
    for folder in sorted(linked_folders(source)):
        if not (folder / LISTING).exists():
            (folder / LISTING).write_text(listing_of(folder), encoding="utf-8")
    for page in source.rglob("*.md"):
        text = _LINK.sub(partial(_to_a_page, page.parent), page.read_text(encoding="utf-8"))
        page.write_text(_FENCE.sub(r"\1text", text), encoding="utf-8")
    with (source / FIRST).open("a", encoding="utf-8") as first:
        first.write(
            "\n".join(["", "```{toctree}", ":hidden:", ":maxdepth: 1", "", *contents(source), "```", ""])
        )


def linked_folders(source: Path) -> set[Path]:
    """The folders that a page links to, and those that hold pages without one that lists them."""
    found = {
        (page.parent / link[1]).resolve()
        for page in source.rglob("*.md")
        for link in _LINK.finditer(page.read_text(encoding="utf-8"))
        if link[1] and "://" not in link[1]
    }
    linked = {folder for folder in found if folder.is_dir()}
    return linked | {page.parent for page in source.rglob("*.md")} - {source, source / SPECS}


def listing_of(folder: Path) -> str:
    """A page that lists what lies in a folder."""
    lines = [f"# {folder.name}", ""]
    for path in sorted(folder.iterdir()):
        if path.suffix == ".md":
            title = _TITLE.search(path.read_text(encoding="utf-8"))
            lines.append(f"- [{title[1] if title else path.stem}]({path.name})")
        elif path.is_file() and not path.with_suffix(".md").exists():
            lines.append(f"- `{path.name}`")
    return "\n".join([*lines, ""])


def page_of(notebook: Path) -> str:
    """The text and the code of a notebook as a page; running it is left to its reader."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = (
        [f"# {notebook.stem}"] if not any("# " in "".join(cell["source"])[:2] for cell in cells[:1]) else []
    )
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join([*parts, f"[The notebook itself]({notebook.name})", ""])


def contents(source: Path) -> Iterator[str]:
    """All pages: first as specs/README.md lists them, then the others."""
    listed = [SPECS / LISTING]
    for link in _LINK.finditer((source / SPECS / LISTING).read_text(encoding="utf-8")):
        path = SPECS / link[1]
        if path.suffix == ".md" and (source / path).is_file():
            listed.append(path)
    others = sorted(page.relative_to(source) for page in source.rglob("*.md"))
    for page in dict.fromkeys([*listed, *others]):
        if page != Path(FIRST):
            yield str(page.with_suffix(""))


def _to_a_page(folder: Path, link: re.Match[str]) -> str:
    """A link to a folder becomes one to the page that lists it."""
    place, anchor = link[1], link[2] or ""
    if place and "://" not in place and (folder / place).is_dir():
        place = f"{place.rstrip('/')}/{LISTING}"
    return f"]({place}{anchor})"


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])))
