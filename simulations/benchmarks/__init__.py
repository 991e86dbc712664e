"""What things cost, measured against physical limits and against the nearest peers."""
