"""Local training with torch; the only part of the roles that imports it."""
