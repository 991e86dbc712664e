"""Opaque bytes between addresses."""
