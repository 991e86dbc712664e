"""What people see of running roles: log lines and signed statuses, and what becomes of them in other hands.

A role process tells through `log.RoleLog` and `status.sign_status`, also what it measured, what it missed, and what
libraries say. `watching.listen` collects the statuses of others, `history.RunHistory` puts a run together from
its logs.
"""
