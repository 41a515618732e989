"""Consumer groups: state machines without I/O, and the shards that store their decisions in `__consumer_offsets`."""
