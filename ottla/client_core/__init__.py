"""The client core: what every client of a Kafka broker decides, as plain objects over bytes and numbers.

Nothing here does input or output. There is no socket, event loop, thread or clock: bytes come in and go out as buffers,
and each call that depends on the time is handed `now`, in seconds of a clock that never goes back. The drivers are
`ottla.client` (asyncio, and through it the blocking client) and `ottla.spark` (blocking sockets in Spark's workers);
they own the sockets, wait, log and turn what the core raises into their own errors.

In reading order: `frames` (bytes to frames), `security` (what the options about TLS and SASL mean), `sasl` (what a
login says), `handshake` (what is settled before the first request), `versions` (which version of an API), `exchange` (a
connection: requests to bytes, bytes to answers), `topic_metadata` and `cluster_view` (what is known of the cluster),
`retries` (whether and when there is another attempt), `partition_queue`, `send_results` and `send_queues` (a producer's
batches and sequences).
"""
