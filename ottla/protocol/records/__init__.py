"""Record batches: the bytes that producers send, that lie in the log and that consumers read."""
