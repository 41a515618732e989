"""Sockets: bytes to frames, and replies in the order of their requests; knows no API."""
