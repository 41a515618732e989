"""The errors of the API: status, `error_code` and message, with Confluent's numbers and words.

Confluent's clients decide by the numbers, and people search for the words. `InvalidSchema` is raised below the API,
where no subject is known.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final


class InvalidSchema(Exception):
    """A schema that is none, in one line for people."""


class RegistryError(Exception):
    """A refusal. The first three digits of `code` are the status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> HTTPStatus:
        """The HTTP status of the code."""
        return HTTPStatus(int(str(self.code)[:3]))


NOT_FOUND: Final = 404
CONFLICT: Final = 409
SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
LEVEL_NOT_CONFIGURED: Final = 40408
MODE_NOT_CONFIGURED: Final = 40409
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
INVALID_SUBJECT: Final = 42208
STORE_FAILED: Final = 50001
TIMED_OUT: Final = 50002


def subject_not_found(subject: str) -> RegistryError:
    """No version of a subject is there."""
    return RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    """A subject does not have a version."""
    return RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    """No schema has an id, or a subject does not have a schema."""
    return RegistryError(SCHEMA_NOT_FOUND, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def invalid_schema(error: InvalidSchema) -> RegistryError:
    """A schema that is none."""
    return RegistryError(INVALID_SCHEMA, f"Invalid schema: {error}")


def invalid_version(text: object) -> RegistryError:
    """A version in a path that is none."""
    return RegistryError(
        INVALID_VERSION,
        f"The specified version '{str(text)[:100]}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def not_permitted(line: str) -> RegistryError:
    """What the mode forbids."""
    return RegistryError(NOT_PERMITTED, line)


def reference_exists(subject: str, version: int) -> RegistryError:
    """A version that other schemas refer to cannot be deleted."""
    line = f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}."
    return RegistryError(REFERENCE_EXISTS, line)
