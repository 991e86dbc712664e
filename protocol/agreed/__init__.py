"""What all parties of a federation signed: its parameters, its roster with the anchor, and whom it defends against.

Values only, checked when they are built; the whole protocol reads them.
"""
