"""Protobuf: what is a schema, the text that is stored, and what may follow what."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, empty_pb2, struct_pb2, timestamp_pb2, type_pb2

from ottla.registry.errors import InvalidSchema
from ottla.registry.protobuf_text import LONGEST_TEXT
from ottla.registry.records import PROTOBUF
from ottla.registry.resolved import Resolved
from ottla.registry.schemas import parse_schema

ALL_PARTS = """syntax = "proto3";
package a.b;
import "google/protobuf/timestamp.proto";
option java_package = "com.x";
option optimize_for = SPEED;

message M {
  reserved 2;
  reserved 5 to 9;
  reserved 100 to max;
  reserved "foo", "bar";
  int32 a = 1 [deprecated = true, json_name = "A"];
  optional string s = 3;
  map<string, .a.b.M.N> some_values = 4;
  oneof o {
    string x = 12;
    .a.b.M.N n = 13;
  }
  .google.protobuf.Timestamp t = 14;
  .a.b.M.E e = 15;
  message N {
    repeated int32 q = 1 [packed = false];
  }
  enum E {
    option allow_alias = true;
    Z = 0;
    Y = -1;
    X = -1 [deprecated = true];
    reserved 4;
  }
}

service S {
  rpc F (.a.b.M) returns (stream .a.b.M) { option deprecated = true; }
  rpc G (stream .a.b.M) returns (.a.b.M);
}
"""


def parsed(text: str, *references: Resolved) -> Any:
    return parse_schema(PROTOBUF, text, references)


def in_proto3(body: str) -> str:
    return f'syntax = "proto3"; {body}'


def test_the_stored_text_is_read_as_itself() -> None:
    assert parsed(ALL_PARTS).text == ALL_PARTS


def test_comments_spaces_and_short_names_make_no_difference() -> None:
    short = (
        ALL_PARTS.replace(".a.b.M.N", "N")
        .replace(".a.b.M.E", "E")
        .replace(".a.b.M", "M")
        .replace(" .google", " google")
    )
    short = "// a comment\n" + short.replace("\n", " ").replace("message N", "/* more */ message N")
    assert parsed("/* c */" + short.removeprefix("// a comment\n")).text == ALL_PARTS


def test_both_forms_are_one_schema() -> None:
    schema = parsed(ALL_PARTS)
    again = parsed(schema.formatted("serialized"))
    assert (again.text, again.formatted("serialized")) == (ALL_PARTS, schema.formatted("serialized"))
    assert schema.formatted("other") is None


@pytest.mark.parametrize("module", [descriptor_pb2, empty_pb2, struct_pb2, timestamp_pb2, type_pb2])
def test_files_that_protoc_made(module: Any) -> None:
    """Protobuf's own: in base64, as a serializer sends them, and then by the text that is stored."""
    renamed = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(renamed)
    renamed.package = "other"  # the pool has the names already
    names = {f".google.protobuf.{one.name}" for one in renamed.message_type}
    names |= {f".google.protobuf.{one.name}" for one in renamed.enum_type}

    def rename(message: Any) -> None:
        for field in message.field:
            if any(field.type_name == one or field.type_name.startswith(f"{one}.") for one in names):
                field.type_name = field.type_name.replace(".google.protobuf.", ".other.")
        for nested in message.nested_type:
            rename(nested)

    for message in renamed.message_type:
        rename(message)
    if module is descriptor_pb2:
        with pytest.raises(InvalidSchema, match="cannot keep"):  # the options of its extension ranges
            parsed(base64.b64encode(renamed.SerializeToString()).decode())
        return
    first = parsed(base64.b64encode(renamed.SerializeToString()).decode())
    assert parsed(first.text).text == first.text


def test_imports_are_references() -> None:
    drink = Resolved("kitchen/drink.proto", PROTOBUF, in_proto3("package kitchen; message Drink { string name = 1; }"))
    order = in_proto3('import "kitchen/drink.proto"; message Order { kitchen.Drink drink = 1; }')
    assert ".kitchen.Drink drink = 1;" in parsed(order, drink).text
    with pytest.raises(InvalidSchema, match="the file cannot be built"):
        parsed(order)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("message {", "line 1, column 9: mismatched input"),
        ("xxx", "line 1"),
        ("message A { int32 a = 1; int32 b = 1; }", "the file cannot be built"),
        ("message A { Nope a = 1; }", "the file cannot be built"),
        ("message A { int32 a = 0; }", "0 is not the number of a field"),
        ('syntax = "proto4"; message A {}', "the syntax 'proto4' is not known"),
        ('edition = "2023"; message A {}', "editions of Protobuf are not supported"),
        ("message A { int32 a = 1 [(my.rule) = 3]; }", "custom options are not"),
        ('option optimize_for = "x";', "the option 'optimize_for' cannot be 'x'"),
        ("message A { optional group B = 1 { } }", "Group is not supported"),
        ("message A { extensions 4; } extend A { optional int32 b = 4; }", "Extension is not supported"),
        ("message A { " * 200 + "}" * 200, "nested more than 100 levels"),
        ("//" + "x" * LONGEST_TEXT, "characters at most"),
        ("Zm9vYmFy", ""),
    ],
)
def test_what_is_no_schema_is_refused_in_one_line(text: str, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parsed(text)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr() == ("", "")


def kinds(writer: str, reader: str, syntax: str = "proto3") -> list[str]:
    head = f'syntax = "{syntax}"; '
    return [one.kind for one in parsed(head + reader).differences(parsed(head + writer))]


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        ("message A { int32 a = 1; }", "message A { int32 a = 1; string b = 2; }", []),
        ("message A { int32 a = 1; string b = 2; }", "message A { int32 a = 1; }", []),
        ("message A { int32 a = 1; }", "message A { int32 other = 1; }", []),
        ("message A { int32 a = 1; }", "message A { int64 a = 1; }", []),
        ("message A { bool a = 1; }", "message A { uint32 a = 1; }", []),
        ("message A { string a = 1; }", "message A { bytes a = 1; }", []),
        ("message A { int32 a = 1; }", "message A { string a = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("message A { int32 a = 1; }", "message A { sint32 a = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
        ("message A { } message B { }", "message A { }", ["MESSAGE_REMOVED"]),
        ("message A { }", "message A { } message B { }", []),
        ("message A { message B { } }", "message A { }", ["MESSAGE_REMOVED"]),
        ("message A { B a = 1; } message B { }", "message A { int32 a = 1; } message B { }", ["FIELD_KIND_CHANGED"]),
        (
            "message A { B a = 1; } message B { } message C { }",
            "message A { C a = 1; } message B { } message C { }",
            ["FIELD_NAMED_TYPE_CHANGED"],
        ),
        ("package a; message A { B a = 1; } message B { }", "package b; message A { B a = 1; } message B { }", []),
        ("message A { map<string, int32> a = 1; }", "message A { map<string, int64> a = 1; }", []),
        (
            "message A { map<string, int32> a = 1; }",
            "message A { map<string, string> a = 1; }",
            ["FIELD_SCALAR_KIND_CHANGED"],
        ),
        ("message A { map<string, int32> a = 1; }", "message A { int32 a = 1; }", ["FIELD_KIND_CHANGED"]),
        ("message A { int32 a = 1; }", "message A { repeated int32 a = 1; }", ["FIELD_NUMERIC_LABEL_CHANGED"]),
        (
            "message A { string a = 1; }",
            "message A { repeated string a = 1; }",
            ["FIELD_STRING_OR_BYTES_LABEL_CHANGED"],
        ),
        (
            "message A { oneof o { int32 a = 1; int32 b = 2; } }",
            "message A { oneof o { int32 a = 1; } }",
            ["ONEOF_FIELD_REMOVED"],
        ),
        ("message A { oneof o { int32 a = 1; } }", "message A { oneof o { int32 a = 1; int32 b = 2; } }", []),
        ("message A { int32 a = 1; }", "message A { oneof o { int32 a = 1; } }", []),
        (
            "message A { int32 a = 1; int32 b = 2; }",
            "message A { oneof o { int32 a = 1; int32 b = 2; } }",
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
        ),
        (
            "message A { int32 a = 1; oneof o { int32 b = 2; } }",
            "message A { oneof o { int32 a = 1; int32 b = 2; } }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF"],
        ),
        ("message A { int32 a = 1; int32 b = 2; }", "message A { optional int32 a = 1; optional int32 b = 2; }", []),
        ("message A { E a = 1; } enum E { Z = 0; Y = 1; }", "message A { E a = 1; } enum E { Z = 0; }", []),
    ],
)  # fmt: skip
def test_kinds_of_difference(writer: str, reader: str, expected: list[str]) -> None:
    assert kinds(writer, reader) == expected


def test_required_fields() -> None:
    optional, required = "message A { optional int32 a = 1; }", "message A { required int32 a = 1; }"
    assert kinds(optional, required, "proto2") == ["REQUIRED_FIELD_ADDED"]
    assert kinds(required, optional, "proto2") == ["REQUIRED_FIELD_REMOVED"]
    assert kinds("message A { }", required, "proto2") == ["REQUIRED_FIELD_ADDED"]
    assert kinds(required, "message A { }", "proto2") == ["REQUIRED_FIELD_REMOVED"]


def test_recursive_messages_are_compared() -> None:
    assert kinds("message A { A a = 1; int32 b = 2; }", "message A { A a = 1; }") == []
