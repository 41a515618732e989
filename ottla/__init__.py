"""Ottla: a Kafka broker that you pip install."""

__version__ = "0.1.0.dev0"
"""Said here only: the package's metadata take it from here. Asking importlib.metadata costs a start 20 ms."""
