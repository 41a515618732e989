"""What clients may take: bytes, time of the broker's thread, changes of partitions, new connections."""
