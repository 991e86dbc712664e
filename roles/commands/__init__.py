"""One file per command of the `veilsum` table that needs no simulation."""
