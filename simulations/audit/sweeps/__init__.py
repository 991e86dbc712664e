"""Which requests an audit makes: everything, one parameter after the other, or accuracy against leakage.

Used by the audit commands.
"""
