"""Compaction of one log: of each key the newest record stays."""
