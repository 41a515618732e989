"""Idempotence and transactions of one partition: what producers wrote, and what is open or aborted."""
