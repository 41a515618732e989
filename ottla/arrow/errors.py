"""What is wrong with columns that are to be sent."""


class UnsendableRow(ValueError):
    """A row that no batch can hold: too large, or a header without a key."""
