"""What the commands on a held model have in common: whose keys let them load a task that is code of its own."""

from __future__ import annotations

KEY_HELP = (
    "your own key folder, for a task that is code: it is loaded if the organiser pinned there signed it"
)
