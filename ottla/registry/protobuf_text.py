"""`.proto` files to descriptors, by proto-schema-parser.

What a descriptor of this registry could not be written as text again is refused: custom options, extensions, groups and
editions. Names of types are resolved by the descriptor pool (`protobuf_schema.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from ottla.registry.errors import InvalidSchema

DEEPEST: Final = 100
LONGEST_TEXT: Final = 100_000
"""Characters of a .proto file. The parser is in Python: 60,000 take some seconds."""
SCALARS: Final = {
    one.removeprefix("TYPE_").lower(): number
    for one, number in pb.FieldDescriptorProto.Type.items()
    if one not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_LABELS: Final = {"OPTIONAL": 1, "REQUIRED": 2, "REPEATED": 3}


def parse_proto(text: str) -> Any:
    """The FileDescriptorProto of a .proto file, with names as they are written. Raises InvalidSchema."""
    if len(text) > LONGEST_TEXT:
        raise InvalidSchema(f"a .proto file has {LONGEST_TEXT:,} characters at most, not {len(text):,}")
    _check_depth(text)
    tree = _tree(text)
    if tree.edition:
        raise InvalidSchema("editions of Protobuf are not supported")
    syntax = tree.syntax or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise InvalidSchema(f"the syntax {syntax[:100]!r} is not known")
    file = pb.FileDescriptorProto(syntax="proto3") if syntax == "proto3" else pb.FileDescriptorProto()
    for one in tree.file_elements:
        match type(one).__name__:
            case "Package":
                file.package = one.name
            case "Import":
                if one.public:
                    file.public_dependency.append(len(file.dependency))
                if one.weak:
                    file.weak_dependency.append(len(file.dependency))
                file.dependency.append(one.name)
            case "Option":
                _set_option(file.options, one)
            case "Message":
                _message(file.message_type.add(), one, is_proto3=syntax == "proto3")
            case "Enum":
                _enum(file.enum_type.add(), one)
            case "Service":
                _service(file.service.add(), one)
            case "Comment":
                pass
            case kind:
                raise _not_supported(kind)
    return file


def _tree(text: str) -> Any:
    from antlr4.error.ErrorListener import ErrorListener
    from proto_schema_parser.parser import Parser

    class Refusing(ErrorListener):  # type: ignore[misc]  # antlr4 has no types, so its class is Any
        """Without it the parser goes on after an error, and prints it."""

        def syntaxError(self, _: Any, __: Any, line: int, column: int, message: str, ___: Any) -> None:  # noqa: N802  # antlr4's name
            raise InvalidSchema(f"line {line}, column {column + 1}: {message.splitlines()[0][:200]}")

    def refuse(recognizer: Any) -> None:
        recognizer.removeErrorListeners()
        recognizer.addErrorListener(Refusing())

    try:
        return Parser(setup_lexer=refuse, setup_parser=refuse).parse(text)
    except (ValueError, AttributeError, TypeError, IndexError) as error:
        raise InvalidSchema(f"the .proto file cannot be read: {str(error)[:200]}") from None


def _check_depth(text: str) -> None:
    depth = 0
    for letter in text:
        depth += (letter in "{[<(") - (letter in "}]>)")
        if depth > DEEPEST:
            raise InvalidSchema(f"brackets are nested more than {DEEPEST} levels deep")


def _message(message: Any, tree: Any, *, is_proto3: bool) -> None:
    message.name = tree.name
    optional = []
    for one in tree.elements:
        match type(one).__name__:
            case "Field":
                field = message.field.add()
                _field(field, one)
                if is_proto3 and getattr(one.cardinality, "value", None) == "OPTIONAL":
                    optional.append(field)
            case "MapField":
                _map(message, one)
            case "OneOf":
                index = len(message.oneof_decl)
                message.oneof_decl.add(name=one.name)
                for inner in one.elements:
                    if type(inner).__name__ == "Field":
                        field = message.field.add()
                        _field(field, inner)
                        field.oneof_index = index
                    elif type(inner).__name__ != "Comment":
                        raise _not_supported(f"{type(inner).__name__} in a oneof")
            case "Message":
                _message(message.nested_type.add(), one, is_proto3=is_proto3)
            case "Enum":
                _enum(message.enum_type.add(), one)
            case "Reserved":
                message.reserved_name.extend(one.names)
                for low, high in _ranges(one.ranges, 2**29 - 1):
                    message.reserved_range.add(start=low, end=high + 1)
            case "ExtensionRange" if not one.options:
                for low, high in _ranges(one.ranges, 2**29 - 1):
                    message.extension_range.add(start=low, end=high + 1)
            case "Option":
                _set_option(message.options, one)
            case "Comment":
                pass
            case kind:
                raise _not_supported(kind)
    for field in optional:  # protoc puts the oneofs that stand for `optional` last
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _field(field: Any, tree: Any) -> None:
    field.name, field.number = tree.name, _field_number(tree.number)
    field.label = _LABELS[tree.cardinality.value if tree.cardinality else "OPTIONAL"]
    _set_type(field, tree.type)
    for option in tree.options:
        if option.name == "json_name":
            field.json_name = str(option.value)
        elif option.name == "default":
            field.default_value = _default(option.value)
        else:
            _set_option(field.options, option)


def _set_type(field: Any, name: str) -> None:
    if name in SCALARS:
        field.type = SCALARS[name]
    else:
        field.type_name = name


def _map(message: Any, tree: Any) -> None:
    entry = message.nested_type.add(name=map_entry_name(tree.name))
    entry.options.map_entry = True
    for name, number, kind in (("key", 1, tree.key_type), ("value", 2, tree.value_type)):
        _set_type(entry.field.add(name=name, number=number, label=1), kind)
    field = message.field.add(name=tree.name, number=_field_number(tree.number), label=3, type_name=entry.name)
    for option in tree.options:
        if option.name == "json_name":
            field.json_name = str(option.value)
        else:
            _set_option(field.options, option)


def map_entry_name(field: str) -> str:
    """The name that protoc gives to the entries of a map: `foo_bar` has `FooBarEntry`."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def _enum(enum: Any, tree: Any) -> None:
    enum.name = tree.name
    for one in tree.elements:
        match type(one).__name__:
            case "EnumValue":
                value = enum.value.add(name=one.name, number=one.number)
                for option in one.options:
                    _set_option(value.options, option)
            case "EnumReserved":
                enum.reserved_name.extend(one.names)
                for low, high in _ranges(one.ranges, 2**31 - 1):
                    enum.reserved_range.add(start=low, end=high)
            case "Option":
                _set_option(enum.options, one)
            case "Comment":
                pass
            case kind:
                raise _not_supported(kind)


def _service(service: Any, tree: Any) -> None:
    service.name = tree.name
    for one in tree.elements:
        match type(one).__name__:
            case "Method":
                method = service.method.add(name=one.name)
                method.input_type, method.output_type = one.input_type.type, one.output_type.type
                if one.input_type.stream:
                    method.client_streaming = True
                if one.output_type.stream:
                    method.server_streaming = True
                for inner in one.elements:
                    if type(inner).__name__ == "Option":
                        _set_option(method.options, inner)
            case "Option":
                _set_option(service.options, one)
            case "Comment":
                pass
            case kind:
                raise _not_supported(kind)


def _set_option(options: Any, tree: Any) -> None:
    """Set an option that descriptor.proto declares."""
    field = options.DESCRIPTOR.fields_by_name.get(tree.name)
    if field is None or field.message_type is not None or field.is_repeated:
        raise InvalidSchema(f"the option {tree.name[:100]!r} is not supported: custom options are not")
    value = getattr(tree.value, "name", tree.value)
    try:
        if field.enum_type is not None:
            value = field.enum_type.values_by_name[str(value)].number
        setattr(options, tree.name, value)
    except (TypeError, ValueError, KeyError):
        raise InvalidSchema(f"the option {tree.name[:100]!r} cannot be {str(value)[:100]!r}") from None


def _default(value: Any) -> str:
    value = getattr(value, "name", value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ranges(texts: Iterable[str], highest: int) -> Iterable[tuple[int, int]]:
    for text in texts:
        low, _, high = (part.strip() for part in text.partition(" to "))
        try:
            first = int(low, 0)
            yield first, highest if high == "max" else int(high, 0) if high else first
        except ValueError:
            raise InvalidSchema(f"{text[:100]!r} is not a range of numbers") from None


def _field_number(number: int) -> int:
    if not 1 <= number < 2**29:
        raise InvalidSchema(f"{number} is not the number of a field: 1 to 536,870,911")
    return number


def _not_supported(what: str) -> InvalidSchema:
    return InvalidSchema(f"{what} is not supported by this registry")
