"""What exists on this broker: topics and their partitions, configurations, producer ids."""
