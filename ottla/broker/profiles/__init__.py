"""The Kafka release that this broker shows to its clients: its API versions and features."""
