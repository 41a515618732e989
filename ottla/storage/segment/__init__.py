"""One segment: its bytes, and the look-ups of offsets and timestamps in it."""
