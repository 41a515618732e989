"""Protobuf schemas: `.proto` text, or a FileDescriptorProto in base64 as Python's serializer sends it.

Both become a descriptor that Protobuf's own descriptor pool has accepted, and from it the text that is stored, so that
the two forms of one schema have one id. A schema that the text could not say again is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from ottla.registry.differences import Difference
from ottla.registry.errors import InvalidSchema
from ottla.registry.protobuf_compatibility import protobuf_differences
from ottla.registry.records import PROTOBUF
from ottla.registry.resolved import Resolved
from ottla.registry.schema import Schema

OWN_NAME: Final = "registered.proto"
_WELL_KNOWN: Final = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip


class ProtobufSchema(Schema):
    """A Protobuf schema with the files that it imports."""

    type = PROTOBUF

    def __init__(self, text: str, references: Sequence[Resolved]) -> None:
        try:
            from google.protobuf.descriptor_pool import DescriptorPool

            from ottla.registry.protobuf_printing import print_proto
        except ImportError:
            line = 'Protobuf needs other packages where the registry runs: pip install "ottla[registry]"'
            raise InvalidSchema(line) from None
        self._pool = DescriptorPool()
        self._names: set[str] = set()
        for one in references:
            self._add(one.name, _descriptor(one.text))
        given = _descriptor(text)
        self.file = self._add(OWN_NAME, given)
        resolved = _plain(self.file)
        self._serialized = base64.b64encode(resolved.SerializeToString()).decode()
        try:
            self.text = print_proto(resolved)
            is_whole = _says_the_same(self.text, resolved)
        except (KeyError, InvalidSchema):  # an option's value, or a group, that is not known here
            is_whole = False
        if not is_whole:
            raise InvalidSchema("it has parts, such as custom options, that this registry cannot keep")

    def differences(self, writer: Schema) -> list[Difference]:
        """See Schema."""
        assert isinstance(writer, ProtobufSchema)
        return protobuf_differences(writer.file, self.file)

    def formatted(self, form: str) -> str | None:
        """See Schema: `serialized` is a FileDescriptorProto in base64."""
        return self._serialized if form == "serialized" else None

    def _add(self, name: str, descriptor: Any) -> Any:
        """Add a file to the pool, after the well-known ones that it imports."""
        if name in self._names:
            return self._pool.FindFileByName(name)
        for imported in descriptor.dependency:
            self._add_well_known(imported)
        descriptor.name = name
        try:
            self._pool.AddSerializedFile(descriptor.SerializeToString())
            self._names.add(name)
            return self._pool.FindFileByName(name)
        except (TypeError, KeyError, ValueError) as error:
            line = str(error).splitlines()[0].removeprefix("Couldn't build proto file into descriptor pool: ")
            raise InvalidSchema(f"the file cannot be built: {line[:300]}") from None

    def _add_well_known(self, name: str) -> None:
        own = name.removeprefix("google/protobuf/").removesuffix(".proto")
        if name not in self._names and own in _WELL_KNOWN and name == f"google/protobuf/{own}.proto":
            file = import_module(f"google.protobuf.{own}_pb2").DESCRIPTOR
            for imported in file.dependencies:
                self._add_well_known(imported.name)
            self._pool.AddSerializedFile(file.serialized_pb)
            self._names.add(name)


def _descriptor(text: str) -> Any:
    """The FileDescriptorProto of a text in either form."""
    from google.protobuf import descriptor_pb2 as pb
    from google.protobuf.message import DecodeError

    from ottla.registry.protobuf_text import parse_proto

    if ";" in text or "{" in text:
        return parse_proto(text)
    try:
        descriptor = pb.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return parse_proto(text)
    if descriptor.syntax == "editions" or descriptor.extension:
        raise InvalidSchema("editions and extensions of Protobuf are not supported")
    return descriptor


def _plain(file: Any) -> Any:
    """The descriptor that the pool has made, without what text does not have."""
    from google.protobuf import descriptor_pb2 as pb

    made = pb.FileDescriptorProto()
    file.CopyToProto(made)
    made.ClearField("source_code_info")
    made.ClearField("name")
    for message in made.message_type:
        _clear_json_names(message)
    return made


def _clear_json_names(message: Any) -> None:
    """Leave out the names in JSON that follow from the names of fields: protoc writes all of them."""
    for field in message.field:
        words = field.name.split("_")
        if field.json_name == words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:]):
            field.ClearField("json_name")
    for nested in message.nested_type:
        _clear_json_names(nested)


def _says_the_same(text: str, descriptor: Any) -> bool:
    from ottla.registry.protobuf_text import parse_proto

    return bool(_names_dropped(parse_proto(text)) == _names_dropped(descriptor))


def _names_dropped(file: Any) -> Any:
    """A copy in which the order of nested types and the kinds of named types do not count."""
    from google.protobuf import descriptor_pb2 as pb

    copy = pb.FileDescriptorProto()
    copy.CopyFrom(file)
    copy.ClearField("name")
    for message in copy.message_type:
        _drop(message)
    return copy


def _drop(message: Any) -> None:
    for field in message.field:
        if field.type_name:
            field.ClearField("type")
            field.type_name = field.type_name.rpartition(".")[2]
    nested = sorted(message.nested_type, key=lambda one: one.name)
    oneofs = [one.name for one in message.oneof_decl]
    for field in message.field:
        if field.HasField("oneof_index"):
            field.json_name = f"oneof {oneofs[field.oneof_index]}"
            field.ClearField("oneof_index")
    message.ClearField("oneof_decl")
    fields = sorted(message.field, key=lambda one: one.number)
    del message.nested_type[:]
    message.nested_type.extend(nested)
    copied = [type(one).FromString(one.SerializeToString()) for one in fields]
    del message.field[:]
    message.field.extend(copied)
    for one in message.nested_type:
        _drop(one)
