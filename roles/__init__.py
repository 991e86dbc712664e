"""Role processes: they join the pure protocol and the transport in time."""
