"""The cluster metadata: a pure image, the log that it is replayed from, and the files beside that log."""
