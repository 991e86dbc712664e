"""What each adversary can do with what it saw."""
