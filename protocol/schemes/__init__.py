"""The schemes: what travels in a round, and what each role may learn from it."""
