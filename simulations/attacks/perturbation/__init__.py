"""Attacks on server-side perturbation, by a curious client unless said otherwise.

Each file is one attack or what several share; the audit finds them through `audit.registry` and measures them in
`audit.rows`.
"""
