"""What each adversary can do with what it saw, in folders by what is attacked.

An attack of one's own extends `attack.Attack`; `registry` finds attacks by name. None of them knows the audit.
"""
