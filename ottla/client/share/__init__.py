"""The parts of a ShareConsumer (KIP-932): its membership, its share sessions, and the records that it has acquired."""
