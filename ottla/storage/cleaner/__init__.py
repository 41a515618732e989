"""Compaction of one log: the newest record of each key stays."""
