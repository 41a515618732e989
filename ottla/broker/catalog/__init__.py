"""The contents of this broker: topics and their partitions, configurations, producer ids."""
