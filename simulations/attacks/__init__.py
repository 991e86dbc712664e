"""What each adversary can do with what it saw, in folders by what is attacked.

An attack of one's own extends `attack.Attack`; the audit finds attacks by name, through `audit.registry`.
"""
