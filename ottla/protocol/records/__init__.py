"""Record batches v2 (KIP-98), what producers send, brokers store and consumers read. Pure functions over bytes.

`batch` views and patches whole batches, `builder` grows one record by record, `record` codes single records,
`compression` and `checksum` are the algorithms underneath, `control` names the records that brokers write.
"""
