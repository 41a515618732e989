"""One segment: its bytes, and how an offset or a timestamp is found in it."""
