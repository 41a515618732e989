"""The fields of a struct: the markers of a declaration, and the fields that the compiler derives from it.

Called by message.py (which collects declarations) and compiler.py (which generates code from them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.protocol.types import PRIMITIVES, Primitive
from ottla.protocol.versions import EVERY_VERSION, NO_VERSION, VersionRange, parse_versions


class _Missing:
    """The type of MISSING; its own class so that it prints well."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""No default: the constructor requires the field."""


class Marker(NamedTuple):
    """The value that `since`, `ranged` and `tagged` leave in a class body."""

    versions: str
    default: object
    factory: Callable[[], object] | None
    nullable: str | None
    ignorable: bool
    tag: int | None


def since(
    versions: str,
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    ignorable: bool = False,
) -> Any:
    """A field that exists from a version on: ``since("9+", default=-1)``.

    `versions` is an open range. `default` (or `factory`, for lists) is the value in older versions. `nullable` has the
    versions in which null may be sent, if not in all of them. `ignorable` lets older versions drop a value.
    """
    if not versions.endswith("+"):
        raise ValueError(f"{versions} ends: use ranged()")
    return Marker(versions, default, factory, nullable, ignorable, None)


def ranged(
    versions: str,
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    ignorable: bool = False,
) -> Any:
    """A field that exists in some versions only: ``ranged("0-12", default="")``. Arguments as for `since`."""
    return Marker(versions, default, factory, nullable, ignorable, None)


def tagged(
    tag: int,
    versions: str,
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    ignorable: bool = False,
) -> Any:
    """A tagged field (KIP-482): written only when its value is not the default.

    A tagged struct is declared ``X | None = tagged(0, "12+", default=None)``: None means that the tag is absent.
    Other arguments as for `since`.
    """
    return Marker(versions, default, factory, nullable, ignorable, tag)


class Field(NamedTuple):
    """One field, as the compiler sees it."""

    name: str
    type_name: str
    """A name of ``types.PRIMITIVES``, or the name of a struct nested in the message."""
    is_array: bool
    versions: VersionRange
    nullable_versions: VersionRange
    tag: int | None
    default: object
    """MISSING if the constructor requires the field or a `factory` creates it."""
    factory: Callable[[], object] | None
    ignorable: bool

    @property
    def primitive(self) -> Primitive | None:
        """The primitive type of the field or of its elements; None for structs."""
        return PRIMITIVES.get(self.type_name)

    @property
    def is_required(self) -> bool:
        """Whether the constructor requires it."""
        return self.default is MISSING and self.factory is None


_known: dict[type, tuple[Field, ...]] = {}


def fields_of(cls: Any) -> tuple[Field, ...]:
    """The fields of a struct in wire order, parsed once. Raises TypeError for a declaration that makes no sense."""
    known = _known.get(cls)
    if known is None:
        annotations, declared = cls.__declaration__
        known = tuple(
            _parse(cls.__name__, name, annotation, declared.get(name, MISSING))
            for name, annotation in annotations.items()
        )
        _known[cls] = known
    return known


def _parse(owner: str, name: str, annotation: str, declared: object) -> Field:
    """Parse one annotation such as ``list[FetchRequest.FetchTopic] | None``, with the value assigned to it."""
    marker = declared if isinstance(declared, Marker) else Marker("0+", declared, None, None, False, None)
    text = annotation.replace(" ", "")
    nullable = text.endswith("|None")
    text = text.removesuffix("|None")
    is_array = text.startswith("list[")
    if is_array:
        text = text.removeprefix("list[").removesuffix("]")
    type_name = text.rpartition(".")[2]
    primitive = PRIMITIVES.get(type_name)
    if primitive is not None and not is_array:
        nullable = nullable or primitive.is_nullable
    is_tagged_struct = marker.tag is not None and primitive is None and not is_array
    nullable_versions = EVERY_VERSION if nullable and not is_tagged_struct else NO_VERSION
    if marker.nullable is not None:
        nullable_versions = parse_versions(marker.nullable)
    versions = parse_versions(marker.versions)
    if (
        isinstance(declared, Marker)
        and versions != EVERY_VERSION
        and declared.default is MISSING
        and not declared.factory
    ):
        raise TypeError(f"{owner}.{name}: a field that some versions lack needs a default")
    return Field(
        name,
        type_name,
        is_array,
        versions,
        nullable_versions,
        marker.tag,
        marker.default,
        marker.factory,
        marker.ignorable,
    )
