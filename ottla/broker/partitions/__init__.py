"""A partition as requests see it: its log, and its visible part."""
