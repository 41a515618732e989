"""The records that Kafka itself writes to its internal topics."""
