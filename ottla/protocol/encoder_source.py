"""Writes the Python source that encodes one message at one version.

One flat function as for decoding: neighbouring fields of fixed size are one call of a prepared ``struct``, constants
are folded, and the pieces are joined once. Records end the current buffer and are a separate buffer, so that they go
from the log to the socket without a copy.

The generated function is ``encode(o) -> [buffer, ...]``; ``w`` appends a piece, ``o1``, ... are structs.

With `elements_per_step` it is a generator that returns the same bytes, and yields after each such number of array
elements, counted at all levels together: a long response delays no other request. Each step ends a buffer, so that the
last step does not join everything. (Arrays in tagged fields are written in one step, because their size precedes them.)
"""

from __future__ import annotations

import struct
from typing import Any

from ottla.protocol import primitives
from ottla.protocol.fields import Field
from ottla.protocol.plan import FieldPlan, StructPlan
from ottla.protocol.types import MAX_STRING_BYTES, ZERO_UUID


class EncoderSource:
    """Source and namespace of one encoder."""

    def __init__(self, plan: StructPlan, elements_per_step: int = 0) -> None:
        self.lines: list[str] = []
        self._elements_per_step = elements_per_step
        self.namespace: dict[str, Any] = {
            "BUFFERS": (memoryview, bytes, bytearray),
            "join": b"".join,
            "pack": struct.pack,
            "small": primitives.SMALL_VARINTS,
            "varint": primitives.encode_unsigned_varint,
            "too_long": primitives.too_long,
            "not_in_version": primitives.not_in_version,
        }
        self._indent = 1
        self._names = 0
        self._is_aside = False
        """Whether `w` appends to a tagged field, and not to `parts`."""
        self._formats: dict[str, str] = {}
        self._pending: list[tuple[str, str]] = []
        self._is_flexible = plan.is_flexible
        if elements_per_step:
            self._line("if False:")
            self._line("    yield  # a generator, whatever follows")
            self._line(f"left = {elements_per_step}")
        self._line("buffers = []")
        self._line("parts = []")
        self._line("w = parts.append")
        self._struct(plan, "o")
        self._flush()
        self._line("if parts or not buffers:")
        self._line("    buffers.append(join(parts))")
        self._line("return buffers")

    @property
    def source(self) -> str:
        """The whole function."""
        return "\n".join(["def encode(o):", *self.lines, ""])

    # Structs and fields

    def _struct(self, plan: StructPlan, value: str) -> None:
        """Write the struct that is the value of the expression `value`."""
        for absent in plan.absent:
            self._refuse_absent(plan, absent, value)
        for field in plan.fields:
            self._field(field, f"{value}.{field.name}")
        if plan.is_flexible:
            if plan.tagged:
                self._tags(plan, value)
            else:
                self._fixed("B", "0")

    def _refuse_absent(self, plan: StructPlan, field: Field, value: str) -> None:
        """Refuse a value that the version lacks, unless the schema says `ignorable`, as Kafka does."""
        if field.ignorable:
            return
        name = f"{value}.{field.name}"
        condition = name if field.factory is not None else self._differs(name, field.default)
        self._line(f"if {condition}:")
        self._line(f'    raise not_in_version("{plan.name}.{field.name}", {plan.version})')

    def _differs(self, name: str, default: object) -> str:
        if default is None:
            return f"{name} is not None"
        if isinstance(default, bool):
            return f"not {name}" if default else name
        if isinstance(default, int | str | bytes):
            return f"{name} != {default!r}"
        if default == ZERO_UUID:
            return f"{name}.int"
        return f"{name} != {self._bind(f'default_{len(self.namespace)}', default)}"

    def _field(self, field: FieldPlan, value: str) -> None:
        if field.is_array:
            self._array(field, value)
        elif field.struct is not None:
            self._nested(field, field.struct, value)
        else:
            self._primitive(field, value)

    def _nested(self, field: FieldPlan, plan: StructPlan, value: str) -> None:
        name = self._name("o")
        self._line(f"{name} = {value}")
        if not field.is_nullable:
            self._struct(plan, name)
            return
        self._flush()
        self._line(f"if {name} is None:")
        null = b"\xff" if field.tag is None else b"\0"
        self._line(f"    w({null!r})")
        self._line("else:")
        self._indent += 1
        self._fixed("b", "1")
        self._struct(plan, name)
        self._flush()
        self._indent -= 1

    def _primitive(self, field: FieldPlan, value: str) -> None:
        assert field.primitive is not None
        if field.primitive.name == "Uuid":
            self._fixed("16s", f'{value}.int.to_bytes(16, "big")')
        elif field.primitive.size_bytes:
            self._fixed(field.primitive.format, value)
        elif field.primitive.name == "Records":
            self._records(field, value)
        else:
            self._sized(field, value)

    def _sized(self, field: FieldPlan, value: str) -> None:
        """A string or bytes: the length, then the bytes."""
        assert field.primitive is not None
        is_string = "String" in field.primitive.name
        raw, length = self._name("s"), self._name("n")
        code = "h" if is_string else "i"
        if field.is_nullable:
            self._flush()
            self._line(f"{raw} = {value}")
            self._line(f"if {raw} is None:")
            self._line(f"    w({self._null(code)!r})")
            self._line("else:")
            self._indent += 1
            self._line(f"{raw} = {raw}{'.encode()' if is_string else ''}")
        else:
            self._line(f"{raw} = {value}{'.encode()' if is_string else ''}")
        self._line(f"{length} = len({raw})")
        if is_string:
            self._line(f"if {length} > {MAX_STRING_BYTES}:")
            self._line(f'    raise too_long("{field.name}", {length})')
        self._length(code, length)
        self._flush()
        self._line(f"w({raw})")
        if field.is_nullable:
            self._indent -= 1

    def _records(self, field: FieldPlan, value: str) -> None:
        """The length ends the buffer so far; the records are the next one."""
        records, length = self._name("r"), self._name("n")
        self._flush()
        self._line(f"{records} = {value}")
        self._line(f"if {records} is None:")
        if field.is_nullable:
            self._line(f"    w({self._null('i')!r})")
        else:
            self._line(f'    raise TypeError("{field.name} is None")')
        self._line("else:")
        self._indent += 1
        self._line(f"if not isinstance({records}, BUFFERS):")
        self._line(f'    raise TypeError("{field.name} is not a buffer")')
        self._line(f"{length} = len({records})")
        self._length("i", length)
        self._flush()
        self._line(f"if {length}:")
        self._line("    buffers.append(join(parts))")
        self._line("    parts.clear()")
        self._line(f"    buffers.append({records})")
        self._indent -= 1

    def _array(self, field: FieldPlan, value: str) -> None:
        items, count = self._name("l"), self._name("n")
        self._line(f"{items} = {value}")
        if field.is_nullable:
            self._flush()
            self._line(f"if {items} is None:")
            self._line(f"    w({self._null('i')!r})")
            self._line("else:")
            self._indent += 1
        self._line(f"{count} = len({items})")
        self._length("i", count)
        self._flush()
        self._elements(field, items, count)
        if field.is_nullable:
            self._indent -= 1

    def _elements(self, field: FieldPlan, items: str, count: str) -> None:
        item = self._name("o")
        if field.primitive is not None and field.primitive.name == "Uuid":
            self._line(f"for {item} in {items}:")
            self._line(f'    w({item}.int.to_bytes(16, "big"))')
        elif field.primitive is not None and field.primitive.size_bytes:
            self._line(f'w(pack(f">{{{count}}}{field.primitive.format}", *{items}))')
        else:
            self._line(f"for {item} in {items}:")
            self._indent += 1
            if field.struct is not None:
                self._struct(field.struct, item)
            else:
                element = FieldPlan(field.name, field.primitive, None, False, False, None, None, 1)
                self._sized(element, item)
            self._flush()
            self._count_element()
            self._indent -= 1

    def _count_element(self) -> None:
        """End a step after enough elements, except within a tagged field."""
        if not self._elements_per_step or self._is_aside:
            return
        self._line("left -= 1")
        self._line("if left <= 0:")
        self._line("    buffers.append(join(parts))")
        self._line("    parts.clear()")
        self._line(f"    left = {self._elements_per_step}")
        self._line("    yield")

    def _tags(self, plan: StructPlan, value: str) -> None:
        """The section of tagged fields: how many are set, then each with its number and size."""
        self._flush()
        count = self._name("n")
        conditions = []
        for field in plan.tagged:
            is_list = field.is_array and field.default is not None
            name = f"{value}.{field.name}"
            conditions.append(f"bool({name})" if is_list else self._is_set(field, name))
        self._line(f"{count} = " + " + ".join(f"({condition})" for condition in conditions))
        self._line(f"if not {count}:")
        self._line('    w(b"\\0")')
        self._line("else:")
        self._indent += 1
        self._varint(count)
        for field, condition in zip(plan.tagged, conditions, strict=True):
            self._line(f"if {condition}:")
            self._indent += 1
            self._tag(field, f"{value}.{field.name}")
            self._indent -= 1
        self._indent -= 1

    def _is_set(self, field: FieldPlan, name: str) -> str:
        """The condition under which a tagged field is written. A struct that has only defaults counts as unset.

        A nullable struct is always written: to Kafka's generated code its absence means a struct of defaults.
        """
        if field.struct is not None and field.is_nullable:
            return "True"
        if field.struct is not None and not field.is_nullable:
            unset = self._bind(f"unset_{field.name}", field.struct.cls())
            return f"{name} is not None and {name} != {unset}"
        if isinstance(field.default, bool):
            return f"bool({name})" if not field.default else f"not {name}"
        if field.default == ZERO_UUID:
            return f"{name}.int != 0"
        return self._differs(name, field.default)

    def _tag(self, field: FieldPlan, value: str) -> None:
        """Write the field to a separate list, because its size comes first."""
        outer, body = self._name("w"), self._name("b")
        assert field.tag is not None
        self._line(f"{outer} = w")
        self._line(f"{body} = []")
        self._line(f"w = {body}.append")
        self._is_aside = True
        self._field(field, value)
        self._is_aside = False
        self._flush()
        self._line(f"w = {outer}")
        self._line(f"{body} = join({body})")
        self._line(f"w({primitives.encode_unsigned_varint(field.tag)!r})")
        self._line(f"w(varint(len({body})))")
        self._line(f"w({body})")

    # Lengths and fixed sizes

    def _null(self, legacy_format: str) -> bytes:
        return b"\0" if self._is_flexible else struct.pack(">" + legacy_format, -1)

    def _length(self, legacy_format: str, length: str) -> None:
        """Write a length or count that is in a local variable."""
        if self._is_flexible:
            self._line(f"{length} += 1")
            self._varint(length)
            if legacy_format == "i":
                self._line(f"{length} -= 1")
        else:
            self._fixed(legacy_format, length)

    def _varint(self, number: str) -> None:
        self._flush()
        self._line(f"w(small[{number}] if {number} < 128 else varint({number}))")

    def _fixed(self, code: str, value: str) -> None:
        """Write a value of fixed size together with its neighbours, at the next flush."""
        self._pending.append((code, value))

    def _flush(self) -> None:
        """Write the call that packs the pending run."""
        if not self._pending:
            return
        codes = "".join(code for code, _ in self._pending)
        values = [value for _, value in self._pending]
        self._pending.clear()
        if all(value.isdigit() for value in values):
            self._line(f"w({struct.pack('>' + codes, *map(int, values))!r})")
            return
        name = self._formats.setdefault(codes, f"pack_{len(self._formats)}")
        self.namespace[name] = struct.Struct(">" + codes).pack
        self._line(f"w({name}({', '.join(values)}))")

    # Names

    def _line(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _bind(self, name: str, value: object) -> str:
        self.namespace[name] = value
        return name
