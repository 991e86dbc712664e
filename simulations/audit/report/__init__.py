"""What an audit is read as: verdicts, an HTML page, Markdown tables, plots.

Nothing here attacks anything.
"""
