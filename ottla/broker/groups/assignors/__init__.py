"""Server-side assignors of the consumer protocol (KIP-848): who owns which partition, not how it gets there."""
