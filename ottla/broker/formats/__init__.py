"""Messages of old formats, for clients from before Kafka 0.11."""
