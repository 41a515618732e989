"""A check of `max_records`, the limit of one poll."""

from __future__ import annotations


def check_max_records(max_records: int | None) -> None:
    """Raise TypeError unless it is None or an integer, and ValueError unless it is at least 1.

    Otherwise a poll with 0 or -1 would wait its whole time and return nothing, although there are records. aiokafka and
    kafka-python refuse these values as well.
    """
    if max_records is None:
        return
    if not isinstance(max_records, int) or isinstance(max_records, bool):
        raise TypeError(f"max_records must be an integer or None, not {max_records!r:.80}")
    if max_records < 1:
        raise ValueError(f"max_records must be at least 1, or None for max_poll_records, not {max_records}")
