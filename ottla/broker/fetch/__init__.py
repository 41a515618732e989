"""Reads for consumers: what one Fetch reads, its session, and how it waits."""
