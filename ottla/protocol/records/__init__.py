"""Records as producers send, brokers store and consumers read them. Pure functions over bytes.

Batches v2 (KIP-98): `batch` views and patches whole ones, `builder` grows one record by record, `record` codes single
records, `control` names the records that brokers write; `compression` and `checksum` are the algorithms underneath.
Messages v0 and v1, of clients and logs before Kafka 0.11: `legacy`. What reads a log of any age: `formats`.
"""
