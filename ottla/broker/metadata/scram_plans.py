"""Plans of SCRAM credential changes. Pure functions of the image; the rules are Kafka's (`ScramControlManager`).

A request may name a user once, whatever the mechanisms; a user that is named twice is refused. `by_user` checks that
for the whole request; the users of a long one may be planned some at a time. Differences: salts, salted passwords and
the number of credentials are bounded, and an empty salted password is refused where Kafka fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ottla.scram import LEAST_ITERATIONS, MOST_ITERATIONS, NAMES, keys_of

if TYPE_CHECKING:
    from ottla.broker.metadata.image import MetadataImage
    from ottla.protocol.stored.metadata import MetadataRecord

MAX_SCRAM_CREDENTIALS = 100_000
"""The most credentials of all users and mechanisms: clients with the right to set them name users freely."""
LONGEST_BYTES = 1024
"""The longest name, salt and salted password; Kafka bounds none of them."""


class Deletion(NamedTuple):
    """A credential to remove."""

    name: str
    mechanism: int


class Upsertion(NamedTuple):
    """A credential to set."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion({self.name!r}, {self.mechanism}, ...)"


class UserChange(NamedTuple):
    """The first change for a user in a request, and whether it is the only one."""

    request: Deletion | Upsertion
    is_only: bool


class ScramResult(NamedTuple):
    """The result for one user."""

    user: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class ScramPlan(NamedTuple):
    """Results, one per user, in the order of the users, and the records of those that pass."""

    results: list[ScramResult]
    records: list[MetadataRecord]


def by_user(requests: Iterable[Deletion | Upsertion]) -> list[UserChange]:
    """The changes of a request, one for each user, in the order in which users are first named."""
    users: dict[str, UserChange] = {}
    for request in requests:
        name = request.name
        users[name] = UserChange(request, is_only=True) if name not in users else users[name]._replace(is_only=False)
    return list(users.values())


def plan_scram(image: MetadataImage, users: Sequence[UserChange]) -> ScramPlan:
    """Set and remove credentials of these users of a request; results in their order.

    For a user that is named more than once, the first error is the result, as in Kafka.
    """
    plan = ScramPlan([], [])
    count = len(image.scram_credentials)
    for request, is_only in users:
        name = request.name
        try:
            _check_name(name, request.mechanism)
            is_there = (request.mechanism, name) in image.scram_credentials
            if isinstance(request, Upsertion):
                _check_credential(request)
                if not is_there and count >= MAX_SCRAM_CREDENTIALS:
                    message = f"there are {MAX_SCRAM_CREDENTIALS} SCRAM credentials already"
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
            elif not is_there:
                message = "Attempt to delete a user credential that does not exist"
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
            if not is_only:
                message = "A user credential cannot be altered twice in the same request"
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
        except KafkaError as error:
            plan.results.append(ScramResult(name, error.code, error.message))
            continue
        plan.results.append(ScramResult(name))
        if isinstance(request, Upsertion):
            count += not is_there
            plan.records.append(credential_record(request))
        else:
            plan.records.append(RemoveUserScramCredentialRecord(name=name, mechanism=request.mechanism))
    return plan


def credential_record(request: Upsertion) -> UserScramCredentialRecord:
    """The record of a credential: keys in place of the salted password."""
    keys = keys_of(NAMES[request.mechanism], request.salted_password)
    return UserScramCredentialRecord(
        name=request.name,
        mechanism=request.mechanism,
        salt=request.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=request.iterations,
    )


def _check_name(name: str, mechanism: int) -> None:
    if not name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(name.encode()) > LONGEST_BYTES:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username must not be longer than {LONGEST_BYTES} bytes")
    if mechanism not in NAMES:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _check_credential(request: Upsertion) -> None:
    if request.iterations < LEAST_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if request.iterations > MOST_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    for value, what in ((request.salt, "Salt"), (request.salted_password, "Salted password")):
        if len(value) > LONGEST_BYTES:
            message = f"{what} must not be longer than {LONGEST_BYTES} bytes"
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if not request.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
