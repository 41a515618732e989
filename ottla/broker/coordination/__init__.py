"""The runtime of coordinators on internal topics: the records of a step become one batch, for which its replies wait.

It knows neither groups nor transactions. A coordinator supplies a `CoordinatorDefinition` (the topic, the codec of its
records, its shards), and asks a `CoordinatorRuntime` for the shard of a key. How to add one: CONTRIBUTING.md.
"""
