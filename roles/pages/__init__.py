"""Pages that people look at, complete in one file and without network.

`templates.page` fills a template and escapes what it is given; `charts` draws figures that a page takes as they are.
`follower.RunFollower` keeps the page of a run up to date, `live` and `serving` show it in a browser of this machine.
"""
