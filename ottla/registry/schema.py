"""What a parsed schema of any type can do."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ottla.registry.differences import Difference


class Schema(ABC):
    """A parsed schema."""

    type: str
    text: str
    """The canonical text, which is stored."""

    @abstractmethod
    def differences(self, writer: Schema) -> list[Difference]:
        """What keeps this schema from reading data of `writer`, which is of the same type. Raises InvalidSchema."""

    def formatted(self, form: str) -> str | None:
        """The text in a form that a client asks for; None if the type does not have it."""
        return None
