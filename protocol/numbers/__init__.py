"""Real vectors as ring words, mask streams over them, and means.

Pure arithmetic that is exact bit for bit; `FixedPoint` and `Ring` are what the rest of the protocol works with.
"""
