"""A partition as requests see it: its log, and what of it may be seen."""
