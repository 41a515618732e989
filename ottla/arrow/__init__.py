"""Records as Arrow columns, both ways: batches to record batches, and columns to the bodies of batches.

The PySpark source and the client (`consumer.arrow()`, `producer.send_many`) share it. It needs numpy, pyarrow, and of
Ottla only `protocol`: Spark's executors import it, and the client imports it when Arrow is first used.

`batches` finds, checks and unpacks batches, `record_bounds` and `varints` read many records at the same time, `decoder`
makes columns of them. `encoder` does the reverse, `murmur2` chooses partitions for a column of keys.
"""
