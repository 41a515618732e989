"""The client core: the decisions of every client of a Kafka broker, as plain objects over bytes and numbers.

Nothing here does input or output. There is no socket, event loop, thread or clock: bytes come in and go out as buffers,
and each call that depends on the time gets `now`, in seconds of a clock that never goes back. The drivers are
`ottla.client` (asyncio, and through it the blocking client) and `ottla.spark` (blocking sockets in Spark's workers).
They own the sockets, wait, log, and convert the core's exceptions into their own errors.

In reading order: `frames` (bytes to frames), `security` (the options about TLS and SASL), `sasl` (the messages of a
login), `handshake` (the requests before the first one of the driver), `versions` (the version of an API), `exchange` (a
connection: requests to bytes, bytes to answers), `topic_metadata` and `cluster_view` (the known state of the cluster),
`retries` (whether and when to try again), `partition_queue`, `send_results` and `send_queues` (a producer's batches and
sequences).
"""
