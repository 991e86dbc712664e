"""One file per command of the `veilsum` table that runs a whole experiment."""
