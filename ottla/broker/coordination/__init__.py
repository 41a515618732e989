"""The runtime of any coordinator on an internal topic: what one step asks for becomes one batch, replies wait for it.

It knows no group and no transaction. A coordinator supplies a `CoordinatorDefinition` (the topic, the codec of its
records, its shards), and asks a `CoordinatorRuntime` for the shard of a key. How to add one: CONTRIBUTING.md.
"""
