"""Records as producers send, brokers store and consumers read them. Pure functions over bytes.

Batches v2 (KIP-98): `batch` reads and patches whole ones, `builder` adds records one by one, `record` encodes and
decodes single records, `control` has the records that brokers write; `compression` and `checksum` are the algorithms.
`legacy` has messages v0 and v1, of clients and logs before Kafka 0.11. `formats` reads logs of any format.
"""
