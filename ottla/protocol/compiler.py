"""Turns declarations into functions, each on first use: constructors, decoders and encoders.

The generated source is registered with ``linecache``, so that tracebacks, debuggers and profilers show it;
`decoder_text` and `encoder_text` return it. Compiling a message at one version takes about a millisecond and is done
once.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Generator
from typing import Any, Final

from ottla.protocol.decoder_source import DecoderSource
from ottla.protocol.diagnosis import find_unencodable
from ottla.protocol.encoder_source import EncoderSource
from ottla.protocol.fields import MISSING, fields_of
from ottla.protocol.plan import plan_message
from ottla.protocol.types import Buffer

ELEMENTS_PER_STEP: Final = 1_000
"""About a millisecond: an element takes 0.2 to 1 us, since most have a few numbers and a name."""


def compile_decoder(cls: Any, version: int) -> Callable[[Buffer, int, int], Any]:
    """Make and cache ``decode(data, position, end) -> (message, position)``. ValueError for an unknown version."""
    generated = DecoderSource(plan_message(cls, version))
    decoder: Callable[[Buffer, int, int], Any] = _load(
        f"decode {cls.__name__} v{version}", "decode", generated.source, generated.namespace
    )
    cls.decoders[version] = decoder
    return decoder


def compile_encoder(cls: Any, version: int) -> Callable[[Any], list[Buffer]]:
    """Make and cache ``encode(message) -> buffers``. ValueError for an unknown version."""
    generated = EncoderSource(plan_message(cls, version))
    encoder: Callable[[Any], list[Buffer]] = _load(
        f"encode {cls.__name__} v{version}", "encode", generated.source, generated.namespace
    )
    cls.encoders[version] = encoder
    return encoder


def compile_stepped_encoder(cls: Any, version: int) -> Callable[[Any], Generator[None, None, list[Buffer]]]:
    """Make and cache the same as a generator that yields after each ELEMENTS_PER_STEP elements, and returns the
    buffers. ValueError for an unknown version.
    """
    generated = EncoderSource(plan_message(cls, version), ELEMENTS_PER_STEP)
    encoder: Callable[[Any], Generator[None, None, list[Buffer]]] = _load(
        f"encode {cls.__name__} v{version} in steps", "encode", generated.source, generated.namespace
    )
    cls.stepped_encoders[version] = encoder
    return encoder


def compile_constructor(cls: Any) -> Callable[..., None]:
    """Make ``__init__`` with one keyword argument per field; each object gets new lists."""
    namespace: dict[str, Any] = {"MISSING": MISSING}
    parameters: list[str] = []
    assignments: list[str] = []
    for field in fields_of(cls):
        assignments.append(f"    self.{field.name} = {field.name}")
        if field.is_required:
            parameters.append(field.name)
        elif field.factory is not None:
            namespace[f"make_{field.name}"] = field.factory
            parameters.append(f"{field.name}=MISSING")
            assignments[-1] = (
                f"    self.{field.name} = make_{field.name}() if {field.name} is MISSING else {field.name}"
            )
        else:
            namespace[f"default_{field.name}"] = field.default
            parameters.append(f"{field.name}=default_{field.name}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    source = "\n".join([f"def __init__({signature}):", *(assignments or ["    pass"]), ""])
    constructor: Callable[..., None]
    constructor = _load(f"construct {cls.__qualname__}", "__init__", source, namespace, cls.__qualname__)
    return constructor


def decoder_text(cls: Any, version: int) -> str:
    """The source of a decoder, for reading."""
    return DecoderSource(plan_message(cls, version)).source


def encoder_text(cls: Any, version: int) -> str:
    """The source of an encoder, for reading."""
    return EncoderSource(plan_message(cls, version)).source


def explain_unencodable(message: Any, version: int, error: Exception) -> str:
    """One line that names the message and, if it can be found, the field that caused `error`."""
    cls = type(message)
    problem = find_unencodable(plan_message(cls, version), message)
    return f"{cls.__name__} v{version}: {problem or error}"


def _load(title: str, name: str, source: str, namespace: dict[str, Any], owner: str = "") -> Any:
    """Execute generated source and return the function in it; tracebacks can find the source."""
    filename = f"<ottla: {title}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)
    function = namespace[name]
    function.__qualname__ = f"{owner}.{name}" if owner else title
    return function
