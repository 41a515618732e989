"""Metrics and log levels, for administrators and their tools."""
