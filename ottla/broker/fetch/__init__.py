"""Reads for consumers: the read of one Fetch, its session, and how it waits."""
