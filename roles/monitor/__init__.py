"""What people see of running roles: log lines, signed statuses, a whole federation launched and watched.

Nothing here decides anything about a round.
"""
