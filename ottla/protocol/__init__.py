"""The Kafka wire protocol. Pure: no sockets, no files, no clock."""
