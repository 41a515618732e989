"""Server-side assignors of the consumer protocol (KIP-848): the owner of each partition, not the steps to it."""
