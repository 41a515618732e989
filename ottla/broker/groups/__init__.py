"""Consumer groups: pure machines that decide, and the shards that keep what they decide in `__consumer_offsets`."""
