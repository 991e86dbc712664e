"""Pages that people look at: one place for their templates, their charts and their style, all of it without network."""
