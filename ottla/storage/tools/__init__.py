"""Offline eyes and hands: what explains, verifies and repairs log directories; no broker runs them while it serves."""
