"""Plain classes with fields, declared like dataclasses, for modules that a start imports: nothing is compiled.

`dataclasses` writes and compiles several functions for each class (0.3 to 1 ms; the classes of a start took 8 ms). Here
all classes share one constructor, which takes the fields by position or by name and is some microseconds slower::

    class Contents(Plain):
        bases: list[int] = field(factory=list)
        has_changed: bool = False

Fields become slots, those of a base class first. Two objects of a class are equal when their fields are, and have no
hash; with ``eq=False`` each equals only itself; ``frozen=True`` refuses assignments. Annotations have to be strings
(`from __future__ import annotations`). Imports nothing of Ottla.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform

T = TypeVar("T")


class _Factory:
    """The placeholder that `field` puts into a class body."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


def field(*, factory: Callable[[], T]) -> T:
    """A default that is created for each object."""
    return _Factory(factory)  # type: ignore[return-value]  # the constructor calls it


def _refuse_assignment(self: object, name: str, value: object) -> None:
    raise AttributeError(f"{type(self).__qualname__} is frozen: {name} cannot be assigned")


@dataclass_transform(field_specifiers=(field,))
class PlainMeta(type):
    """The metaclass that turns the annotations of a class into slots, and keeps their defaults for the constructor."""

    plain_fields: tuple[str, ...]
    plain_defaults: dict[str, object]

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, eq: bool = True, frozen: bool = False
    ) -> PlainMeta:
        """Collect the fields; see the module for `eq` and `frozen`."""
        annotations: dict[str, str] = namespace.get("__annotations__", {})
        fields = [field for field, annotation in annotations.items() if not annotation.startswith("ClassVar")]
        defaults = {field: namespace.pop(field) for field in fields if field in namespace}
        namespace["__slots__"] = tuple(fields)
        if not eq:
            namespace |= {"__eq__": object.__eq__, "__hash__": object.__hash__}
        if frozen:
            namespace["__setattr__"] = _refuse_assignment
        made = super().__new__(cls, name, bases, namespace)
        inherited = [base for base in bases if isinstance(base, PlainMeta)]
        made.plain_fields = tuple(field for base in inherited for field in base.plain_fields) + tuple(fields)
        made.plain_defaults = {field: value for base in inherited for field, value in base.plain_defaults.items()}
        made.plain_defaults |= defaults
        return made


class Plain(metaclass=PlainMeta):
    """See the module."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *values: object, **named: object) -> None:
        """Set each field, by position, by name, or to its default. Raises TypeError like an ordinary constructor."""
        cls = type(self)
        fields = cls.plain_fields
        if len(values) > len(fields):
            raise TypeError(f"{cls.__qualname__} has {len(fields)} fields, {len(values)} were given")
        assign = object.__setattr__
        for name, value in zip(fields, values, strict=False):
            assign(self, name, value)
        for name in fields[len(values) :]:
            if name in named:
                value = named.pop(name)
            else:
                try:
                    value = cls.plain_defaults[name]
                except KeyError:
                    raise TypeError(f"{cls.__qualname__}: {name} is missing") from None
                if isinstance(value, _Factory):
                    value = value.make()
            assign(self, name, value)
        if named:
            raise TypeError(f"{cls.__qualname__} has no field {', '.join(named)}, or it was given twice")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.field_values() == other.field_values()

    __hash__ = None  # type: ignore[assignment]  # most are mutable

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.field_values().items())
        return f"{type(self).__qualname__}({fields})"

    def field_values(self) -> dict[str, Any]:
        """The fields by name, in their order; the values are not copied."""
        return {name: getattr(self, name) for name in type(self).plain_fields}
