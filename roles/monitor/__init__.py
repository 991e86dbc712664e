"""What people see of running roles: log lines and signed statuses.

A role process tells through `log.RoleLog` and `status.sign_status`; `watching.listen` collects what others tell.
"""
