"""The primitive types of the Kafka protocol, as names for annotations.

A message declares ``throttle_time_ms: Int32``: the type checker sees ``int``, and the compiler finds the encoding in
``PRIMITIVES`` by the name in the annotation. Lists are written ``list[Int32]``, a nullable one ``list[Int32] | None``.

Source: the "Protocol Primitive Types" of the Kafka protocol guide; big-endian throughout.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias
from uuid import UUID

Buffer: TypeAlias = bytes | bytearray | memoryview

Bool: TypeAlias = bool
Int8: TypeAlias = int
Int16: TypeAlias = int
Int32: TypeAlias = int
Int64: TypeAlias = int
Uint16: TypeAlias = int
Uint32: TypeAlias = int
Float64: TypeAlias = float
String: TypeAlias = str
NullableString: TypeAlias = str | None
Bytes: TypeAlias = bytes
NullableBytes: TypeAlias = bytes | None
Uuid: TypeAlias = UUID

Records: TypeAlias = Buffer | None
"""Record batches as they are sent. Decoding returns a ``memoryview`` into the frame (writable if the frame is), or
None; encoding takes any buffer of bytes."""

ZERO_UUID = UUID(int=0)
"""Kafka's "no id"."""

MAX_STRING_BYTES = 32_767
"""The longest string in UTF-8, also where its length is a varint (Kafka refuses longer ones at both ends)."""


class Primitive(NamedTuple):
    """The layout of one primitive type."""

    name: str
    format: str
    """The ``struct`` code of a type of fixed size; empty for strings, bytes and records."""
    size_bytes: int
    """The size if fixed; 0 if the type begins with its length."""
    default: object
    """The default of a field that declares none."""
    is_nullable: bool = False


PRIMITIVES: dict[str, Primitive] = {
    primitive.name: primitive
    for primitive in (
        Primitive("Bool", "?", 1, False),
        Primitive("Int8", "b", 1, 0),
        Primitive("Int16", "h", 2, 0),
        Primitive("Int32", "i", 4, 0),
        Primitive("Int64", "q", 8, 0),
        Primitive("Uint16", "H", 2, 0),
        Primitive("Uint32", "I", 4, 0),
        Primitive("Float64", "d", 8, 0.0),
        Primitive("Uuid", "16s", 16, ZERO_UUID),
        Primitive("String", "", 0, ""),
        Primitive("NullableString", "", 0, None, is_nullable=True),
        Primitive("Bytes", "", 0, b""),
        Primitive("NullableBytes", "", 0, None, is_nullable=True),
        Primitive("Records", "", 0, None, is_nullable=True),
    )
}
