"""The quotas of clients: bytes, time of the broker's thread, changes of partitions, new connections."""
