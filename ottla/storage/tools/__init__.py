"""Offline tools that explain, verify and repair log directories; a broker does not run them while it serves."""
