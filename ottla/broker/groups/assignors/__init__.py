"""Server-side assignors of the consumer protocol (KIP-848): who is to own which partition, and nothing about how."""
