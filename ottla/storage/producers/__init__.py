"""Idempotence and transactions of one partition: the state of producers, and open and aborted transactions."""
