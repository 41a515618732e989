"""Writes the Python source that decodes one message at one version.

One flat function: nested structs and arrays become nested blocks, and neighbouring fields of fixed size become one call
of a prepared ``struct`` (which also reads the first byte of the length, count or tag section after them). So decoding
is about as fast as hand-written Python, 2-5 times faster than a loop over the fields.

The bytes come from outside, so every length and count is compared with the bytes that are left before it is used.
`MAX_ELEMENTS` limits the objects that one message can create, `MAX_REQUEST_ELEMENTS` those of a request.

The generated function is ``decode(data, p, end) -> (message, p)``; ``o``, ``o1``, ... are structs, ``n1`` lengths.
"""

from __future__ import annotations

import struct
from typing import Any

from ottla.protocol import primitives
from ottla.protocol.plan import FieldPlan, StructPlan
from ottla.protocol.types import MAX_STRING_BYTES

MAX_ELEMENTS = 1_048_576
"""Array elements in one message, in all arrays together. Without it, 100 MB could become 3 GB of empty structs."""
MAX_REQUEST_ELEMENTS = 65_536
"""The same for a request: a broker decodes it without a pause while other requests wait (docs/limits.md)."""
MAX_ELEMENTS_IN_ONE_PIECE = 20_000
"""The same for a request that a broker also handles without a pause."""


class DecoderSource:
    """Source and namespace of one decoder."""

    def __init__(self, plan: StructPlan) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {
            "new": object.__new__,
            "unpack": struct.unpack_from,
            "varint_tail": primitives.varint_tail,
            "skip_tags": primitives.skip_tags,
            "check_tag_count": primitives.check_tag_count,
            "uuid": primitives.uuid_from_bytes,
            "bad_length": primitives.bad_length,
            "bad_count": primitives.bad_count,
            "bad_tag": primitives.bad_tag,
        }
        self._indent = 1
        self._names = 0
        self._formats: dict[str, str] = {}
        self._pending: list[tuple[str, str]] = []
        self._after_pending: list[str] = []
        self._is_flexible = plan.is_flexible
        self._message(plan)

    @property
    def source(self) -> str:
        """The whole function."""
        return "\n".join(["def decode(data, p, end):", *self.lines, ""])

    def _message(self, plan: StructPlan) -> None:
        if _has(plan, records=True):
            self._line("view = data if type(data) is memoryview else memoryview(data)")
        if _has(plan, records=False):
            self._line(f"room = {getattr(plan.cls, 'max_elements', MAX_ELEMENTS)}")
        self._struct(plan, "o")
        self._flush()
        self._line("return o, p")

    # Structs and fields

    def _struct(self, plan: StructPlan, target: str) -> None:
        """Read a struct into a new object named `target`."""
        cls = self._bind(plan.name, plan.cls)
        self._line(f"{target} = new({cls})")
        for absent in plan.absent:
            default = "[]" if absent.factory is not None else self._constant(absent.default)
            self._line(f"{target}.{absent.name} = {default}")
        for field in plan.fields:
            self._field(field, f"{target}.{field.name}")
        if plan.is_flexible:
            self._tags(plan, target)

    def _field(self, field: FieldPlan, target: str) -> None:
        if field.is_array:
            self._array(field, target)
        elif field.struct is not None:
            self._nested(field, field.struct, target)
        else:
            self._primitive(field, target)

    def _nested(self, field: FieldPlan, plan: StructPlan, target: str) -> None:
        name = self._name("o")
        if not field.is_nullable:
            self._struct(plan, name)
            self._flush()
            self._line(f"{target} = {name}")
            return
        marker = self._name("n")
        self._fixed("b", marker)
        self._flush()
        # Kafka's generated code marks a null struct by -1, and in a tagged field by 0.
        self._line(f"if {marker} < 0:" if field.tag is None else f"if not {marker}:")
        self._line(f"    {target} = None")
        self._line("else:")
        self._indent += 1
        self._struct(plan, name)
        self._flush()
        self._line(f"{target} = {name}")
        self._indent -= 1

    def _primitive(self, field: FieldPlan, target: str) -> None:
        assert field.primitive is not None
        if field.primitive.name == "Uuid":
            raw = self._name("u")
            self._fixed("16s", raw)
            self._after_pending.append(f"{target} = uuid({raw})")
        elif field.primitive.size_bytes:
            self._fixed(field.primitive.format, target)
        else:
            self._sized(field, target)

    def _sized(self, field: FieldPlan, target: str) -> None:
        """A string, bytes or records: a length, then as many bytes."""
        assert field.primitive is not None
        is_string = "String" in field.primitive.name
        length = self._length("h" if is_string else "i")
        end = self._name("e")
        limit = f"{length} > {MAX_STRING_BYTES} or " if is_string and self._is_flexible else ""
        value = f"data[p:{end}]"
        if is_string:
            value = f'str({value}, "utf-8")'
        elif field.primitive.name == "Records":
            value = f"view[p:{end}]"
        else:
            value = f"bytes({value})"
        if field.is_nullable:
            self._line(f"if {length} == -1:")
            self._line(f"    {target} = None")
            self._line("else:")
            self._indent += 1
        self._line(f"{end} = p + {length}")
        self._line(f"if {limit}not p <= {end} <= end:")
        self._line(f'    raise bad_length("{field.name}", {length}, end - p)')
        self._line(f"{target} = {value}")
        self._line(f"p = {end}")
        if field.is_nullable:
            self._indent -= 1

    def _array(self, field: FieldPlan, target: str) -> None:
        count = self._length("i")
        if field.is_nullable:
            self._line(f"if {count} == -1:")
            self._line(f"    {target} = None")
            self._line("else:")
            self._indent += 1
        too_many = f"{count} * {field.element_min_bytes} > end - p"
        self._line(f"if {count} < 0 or {too_many} or {count} > room:")
        self._line(f'    raise bad_count("{field.name}", {count}, end - p)')
        self._line(f"room -= {count}")
        self._elements(field, target, count)
        if field.is_nullable:
            self._indent -= 1

    def _elements(self, field: FieldPlan, target: str, count: str) -> None:
        if field.primitive is not None and field.primitive.name == "Uuid":
            self._line(f"{target} = [uuid(bytes(data[q : q + 16])) for q in range(p, p + {count} * 16, 16)]")
            self._line(f"p += {count} * 16")
        elif field.primitive is not None and field.primitive.size_bytes:
            self._line(f'{target} = list(unpack(f">{{{count}}}{field.primitive.format}", data, p))')
            self._line(f"p += {count} * {field.primitive.size_bytes}")
        else:
            items, item = self._name("l"), self._name("o")
            self._line(f"{target} = {items} = []")
            self._line(f"for _ in range({count}):")
            self._indent += 1
            if field.struct is not None:
                self._struct(field.struct, item)
            else:
                self._sized(_element(field), item)
            self._flush()
            self._line(f"{items}.append({item})")
            self._indent -= 1

    def _tags(self, plan: StructPlan, target: str) -> None:
        """The section of tagged fields at the end of a struct: usually one zero byte."""
        count = self._name("n")
        self._fixed("B", count)
        self._flush()
        for field in plan.tagged:
            default = "[]" if field.is_array and field.default is not None else self._constant(field.default)
            self._line(f"{target}.{field.name} = {default}")
        self._line(f"if {count}:")
        if not plan.tagged:
            self._line(f"    p = skip_tags(data, p, end, {count})")
            return
        self._indent += 1
        self._varint_rest(count)
        self._line(f"check_tag_count({count}, end - p)")
        self._line(f"for _ in range({count}):")
        self._indent += 1
        tag, size, tag_end = self._name("n"), self._name("n"), self._name("e")
        self._varint(tag)
        self._varint(size)
        self._line(f"{tag_end} = p + {size}")
        self._line(f"if {tag_end} > end:")
        self._line(f"    raise bad_tag({tag}, {size})")
        for position, field in enumerate(plan.tagged):
            self._line(f"{'el' if position else ''}if {tag} == {field.tag}:")
            self._indent += 1
            self._field(field, f"{target}.{field.name}")
            self._flush()
            self._indent -= 1
        self._line("else:")
        self._line(f"    p = {tag_end}")
        self._line(f"if p != {tag_end}:")
        self._line(f"    raise bad_tag({tag}, {size})")
        self._indent -= 2

    # Lengths and fixed sizes

    def _length(self, legacy_format: str) -> str:
        """Read a length or count; -1 is null in both encodings."""
        length = self._name("n")
        if not self._is_flexible:
            self._fixed(legacy_format, length)
            self._flush()
            return length
        self._fixed("B", length)
        self._flush()
        self._varint_rest(length)
        self._line(f"{length} -= 1")
        return length

    def _varint(self, target: str) -> None:
        self._fixed("B", target)
        self._flush()
        self._varint_rest(target)

    def _varint_rest(self, target: str) -> None:
        """Continue a varint whose first byte was read as part of a run."""
        self._line(f"if {target} > 127:")
        self._line(f"    {target}, p = varint_tail(data, p, {target})")

    def _fixed(self, code: str, target: str) -> None:
        """Read a value of fixed size together with its neighbours, at the next flush."""
        self._pending.append((code, target))

    def _flush(self) -> None:
        """Write the call that reads the pending run."""
        if self._pending:
            codes = "".join(code for code, _ in self._pending)
            targets = ", ".join(target for _, target in self._pending)
            size_bytes = struct.calcsize(">" + codes)
            if codes == "B":
                self._line(f"{targets} = data[p]")
            else:
                comma = "," if len(self._pending) == 1 else ""
                self._line(f"{targets}{comma} = {self._unpacker(codes)}(data, p)")
            self._line(f"p += {size_bytes}")
        for line in self._after_pending:
            self._line(line)
        self._pending.clear()
        self._after_pending.clear()

    def _unpacker(self, codes: str) -> str:
        name = self._formats.setdefault(codes, f"unpack_{len(self._formats)}")
        self.namespace[name] = struct.Struct(">" + codes).unpack_from
        return name

    # Names

    def _line(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _bind(self, name: str, value: object) -> str:
        self.namespace[name] = value
        return name

    def _constant(self, value: object) -> str:
        """A default as source: a literal, or a name bound to it."""
        if value is None or isinstance(value, bool | int | str | bytes):
            return repr(value)
        return self._bind(f"default_{len(self.namespace)}", value)


def _element(field: FieldPlan) -> FieldPlan:
    """The field that one element of an array of strings or bytes would be."""
    return FieldPlan(field.name, field.primitive, None, False, False, None, None, field.element_min_bytes)


def _has(plan: StructPlan, *, records: bool) -> bool:
    """Whether the message has records (or else arrays) somewhere."""
    for field in (*plan.fields, *plan.tagged):
        if records and field.primitive is not None and field.primitive.name == "Records":
            return True
        if not records and field.is_array:
            return True
        if field.struct is not None and _has(field.struct, records=records):
            return True
    return False
