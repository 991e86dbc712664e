"""Pages that people look at, complete in one file and without network.

`templates.page` fills a template and escapes what it is given; `charts` draws figures that a page takes as they are.
"""
