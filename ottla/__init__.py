"""Ottla: a Kafka broker that you pip install."""
