"""Noise on the uploaded change, or private steps with an account: settings, guards, clipped steps and the account.

Others ask for it by name, through `defences.registry`.
"""
