"""The cluster metadata: a pure image, the log from which it is replayed, and the files beside that log."""
