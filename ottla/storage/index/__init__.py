"""Sparse indexes of a segment: by offset and by time."""
