"""Messages: their declaration, construction, comparison, decoding and encoding.

One class describes a message at all its versions. Fields are annotations in the order of the wire. A field that depends
on the version is declared with `since`, `ranged` or `tagged`::

    class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+"):
        class DeleteTopicState(Struct):
            name: NullableString = None
            topic_id: Uuid

        topics: list[DeleteTopicState] = since("6+", factory=list)
        topic_names: list[String] = ranged("0-5", factory=list, ignorable=True)
        timeout_ms: Int32

A field that a version lacks is read as its default. If a field has another value, writing a version that lacks it is
refused, unless the field is `ignorable`: dropping it silently would change the meaning of the message. All structs are
nested directly in their message, so a struct names another with the message's name
(``list[FetchRequest.FetchPartition]``).

Annotations stay strings (every module of declarations begins with ``from __future__ import annotations``). They are
parsed on first use, and the constructor and the codecs of a version are generated then: importing all APIs costs a few
milliseconds.

Pure: no sockets, no files, no clock. Everything that handles a Kafka message may call `decode` and `encode`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

from ottla.protocol import compiler
from ottla.protocol.decoder_source import MAX_ELEMENTS, MAX_REQUEST_ELEMENTS
from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.fields import Field, Marker, fields_of, ranged, since, tagged
from ottla.protocol.types import Buffer
from ottla.protocol.versions import NO_VERSION, VersionRange, parse_versions

__all__ = [
    "Message",
    "Request",
    "Response",
    "Struct",
    "decode",
    "decode_prefix",
    "encode",
    "encode_buffers",
    "encode_in_steps",
    "ranged",
    "since",
    "tagged",
]

M = TypeVar("M", bound="Message")


@dataclass_transform(kw_only_default=True, field_specifiers=(since, ranged, tagged))
class StructMeta(type):
    """Turns the annotations of a struct into slots and keeps its markers for the compiler."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **arguments: object) -> StructMeta:
        """Collect the declaration; nothing is parsed or compiled yet."""
        annotations: dict[str, str] = {
            field: annotation
            for field, annotation in namespace.get("__annotations__", {}).items()
            if not annotation.startswith("ClassVar")
        }
        declared = {field: namespace.pop(field) for field in annotations if field in namespace}
        namespace["__slots__"] = tuple(annotations)
        namespace["__declaration__"] = (annotations, declared)
        return super().__new__(cls, name, bases, namespace, **arguments)


class Struct(metaclass=StructMeta):
    """A group of fields: keyword constructor, slots, equality by value, a readable repr. Not hashable."""

    __slots__: ClassVar[tuple[str, ...]] = ()
    __declaration__: ClassVar[tuple[dict[str, str], dict[str, Marker | object]]]

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            # Replaced by a generated constructor on first use; see compiler.compile_constructor.
            cls = type(self)
            cls.__init__ = compiler.compile_constructor(cls)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field) == getattr(other, field) for field in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable and compared by value

    def __repr__(self) -> str:
        fields = ", ".join(f"{field}={getattr(self, field)!r}" for field in self.__slots__)
        return f"{type(self).__qualname__}({fields})"

    @classmethod
    def fields(cls) -> tuple[Field, ...]:
        """The declared fields in the order of the wire."""
        return fields_of(cls)

    def replace(self, **changes: object) -> Self:
        """A shallow copy with some fields changed; raises TypeError for a name that is not a field."""
        values: dict[str, Any] = {field: getattr(self, field) for field in self.__slots__}
        return type(self)(**{**values, **changes})


class Message(Struct):
    """A struct that is sent or stored by itself, with a version range and the codecs of the versions that were used."""

    message_key: ClassVar[int] = -1
    """The API key of a request or response, the record type of a stored record, -1 for neither."""
    message_versions: ClassVar[VersionRange] = NO_VERSION
    """The versions that this class can decode and encode."""
    flexible_versions: ClassVar[VersionRange] = NO_VERSION
    """The versions with compact lengths and tagged fields (KIP-482)."""
    max_elements: ClassVar[int] = MAX_ELEMENTS
    """The maximum number of array elements when it is decoded, in all arrays together."""
    decoders: ClassVar[dict[int, Callable[[Buffer, int, int], tuple[Any, int]]]]
    encoders: ClassVar[dict[int, Callable[[Any], list[Buffer]]]]
    stepped_encoders: ClassVar[dict[int, Callable[[Any], Generator[None, None, list[Buffer]]]]]

    def __init_subclass__(
        cls, *, key: int = -1, versions: str = "none", flexible: str = "none", max_elements: int = 0
    ) -> None:
        cls.message_key = key
        if max_elements:
            cls.max_elements = max_elements
        cls.message_versions = parse_versions(versions)
        cls.flexible_versions = parse_versions(flexible)
        cls.decoders = {}
        cls.encoders = {}
        cls.stepped_encoders = {}


class Request(Message):
    """A message from a client, after the request header."""

    max_elements: ClassVar[int] = MAX_REQUEST_ELEMENTS


class Response(Message):
    """A message from a broker, after the response header."""


def decode(cls: type[M], data: Buffer, version: int, position: int = 0) -> M:
    """Read one message that begins at `position`; bytes after it are ignored, as Kafka does.

    Records, and nothing else, are views into `data`; they are writable if `data` is, and keep it exported.
    Raises MalformedMessage for bytes that are not such a message, ValueError for a version that `cls` does not have.
    """
    decoder = cls.decoders.get(version) or compiler.compile_decoder(cls, version)
    try:
        message: M = decoder(data, position, len(data))[0]
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _malformed(cls, data, version, position, error) from error
    return message


def decode_prefix(cls: type[M], data: Buffer, version: int, position: int = 0) -> tuple[M, int]:
    """As `decode`, and also return the position after the message."""
    decoder = cls.decoders.get(version) or compiler.compile_decoder(cls, version)
    try:
        return decoder(data, position, len(data))
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _malformed(cls, data, version, position, error) from error


def encode(message: Message, version: int) -> bytes:
    """Write one message as one bytes object.

    Raises UnencodableMessage (a ValueError) if a value does not fit its field or the version lacks a field that is set,
    and ValueError for a version that the class does not have.
    """
    buffers = encode_buffers(message, version)
    # Joining a single bytes object returns that object.
    return b"".join(buffers)


def encode_buffers(message: Message, version: int) -> list[Buffer]:
    """Write one message as buffers to be sent one after the other; records are passed through, never copied.

    Raises as `encode`.
    """
    cls = type(message)
    encoder = cls.encoders.get(version) or compiler.compile_encoder(cls, version)
    try:
        return encoder(message)
    except UnencodableMessage:
        raise
    except (struct.error, TypeError, AttributeError, ValueError) as error:
        raise UnencodableMessage(compiler.explain_unencodable(message, version, error)) from error


def encode_in_steps(message: Message, version: int) -> Generator[None, None, list[Buffer]]:
    """As `encode_buffers`, but pause after each `compiler.ELEMENTS_PER_STEP` elements of arrays, a step of about a
    millisecond. The message and its lists must not change meanwhile.

    Raises as `encode`, in any step.
    """
    cls = type(message)
    encoder = cls.stepped_encoders.get(version) or compiler.compile_stepped_encoder(cls, version)
    try:
        return (yield from encoder(message))
    except UnencodableMessage:
        raise
    except (struct.error, TypeError, AttributeError, ValueError) as error:
        raise UnencodableMessage(compiler.explain_unencodable(message, version, error)) from error


def _malformed(cls: type[Message], data: Buffer, version: int, position: int, error: Exception) -> MalformedMessage:
    """The error of the generated code, as an error of the message."""
    if isinstance(error, UnicodeDecodeError):
        return MalformedMessage(f"{cls.__name__} v{version} holds a string that is not UTF-8: {error}")
    return MalformedMessage(f"{cls.__name__} v{version} ends early: {len(data) - position} bytes")
