"""The runtime of any coordinator on an internal topic: what one step asks for becomes one batch, replies wait for it.

It knows no group and no transaction. A coordinator gives it a `CoordinatorDefinition` (the topic, the codec of its
records, its shards), and asks it for the shard of a key.
"""
