"""The small files of a log directory, byte for byte Kafka's, and the names of all files."""
