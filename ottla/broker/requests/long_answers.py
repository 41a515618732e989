"""The bytes of a response that may be long: it is encoded in steps, and its objects are freed in steps, too.

To free a response of 100,000 objects takes 10 ms, in one piece, when its last reference is dropped. So a response that
took many steps to encode loses its elements before its bytes are returned, some at a time. The list objects themselves
are not changed: a handler may have taken one from elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.protocol.message import Struct, encode_in_steps

if TYPE_CHECKING:
    from collections.abc import Generator

    from ottla.broker.runtime.steps import Steps
    from ottla.protocol.message import Response
    from ottla.protocol.types import Buffer

ENCODED_PER_FREED: Final = 8
"""Encoding steps, a millisecond each, whose elements are freed in one step: freeing takes a tenth of the time."""


def encode_long(response: Response, version: int) -> Steps[list[Buffer]]:
    """The bytes of a response, whose lists may be empty after that. Raises what `encode_in_steps` raises."""
    encoding = encode_in_steps(response, version)
    steps = 0
    while True:
        try:
            next(encoding)
        except StopIteration as end:
            buffers: list[Buffer] = end.value
            break
        steps += 1
        yield
    if steps >= 2 * ENCODED_PER_FREED:
        yield from _free(response, steps // ENCODED_PER_FREED)
    return buffers


def _free(struct: Struct, steps: int) -> Generator[None, None, None]:
    """Empty a struct's lists, each in so many steps; for a list with one element, the lists of that element."""
    for field in struct.__slots__:
        value: Any = getattr(struct, field)
        if not isinstance(value, list) or not value:
            continue
        if len(value) == 1 and isinstance(value[0], Struct):
            yield from _free(value[0], steps)
            continue
        elements = value.copy()
        value = None
        setattr(struct, field, [])
        count = -(-len(elements) // steps)
        while elements:
            del elements[-count:]
            yield
