"""Records as Arrow columns, both ways: batches to record batches, and columns to the bodies of batches.

What the PySpark source and the client (`consumer.arrow()`, `producer.send_many`) share. It needs numpy and pyarrow, and
of Ottla only `protocol`: an executor of Spark imports it, and the client imports it when it is asked for Arrow.

`batches` finds, checks and unpacks batches, `record_bounds` and `varints` read their records side by side, `decoder`
makes columns of them. `encoder` goes the other way, `murmur2` chooses partitions by a column of keys.
"""
