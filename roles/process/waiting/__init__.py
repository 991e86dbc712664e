"""Who waits for whom: a server for parties before it begins, a party that has finished for a server."""

from __future__ import annotations
