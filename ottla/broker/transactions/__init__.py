"""The transaction coordinator: a pure machine per transactional id, shards on `__transaction_state`, and markers."""
