"""The machines of the server and of a participant between rounds, and what a scheme and its attempts are.

Schemes build on `attempt` and `scheme`; drivers feed `server` and `participant` and carry out their `events`.
"""
