"""Whole experiments in one process, on virtual time, from one seed."""
