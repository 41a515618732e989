"""Planted bugs of share groups, which show where there are some (`share_worlds.py`)."""
