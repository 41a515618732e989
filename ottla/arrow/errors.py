"""Errors of columns that cannot be sent."""


class UnsendableRow(ValueError):
    """A row that no batch can hold: too large, or a header without a key."""
