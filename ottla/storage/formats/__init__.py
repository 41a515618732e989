"""The small files of a log directory, in Kafka's exact formats, and the names of all files."""
