"""AlterUserScramCredentials, version 0: set and remove SCRAM credentials of users (KIP-554).

Each user succeeds or fails independently; the answer is sent when the changes are synced. `metadata/scram_plans.py` has
the rules. Sessions that have begun continue, as in Kafka.

A request with many users becomes several changes of the metadata, one after the other, since a credential takes 10 us:
the keys, the record, its replay. If one change cannot be written, its users get that error; the other users are not
affected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.declarations import Need
from ottla.broker.metadata.scram_plans import Deletion, ScramPlan, ScramResult, Upsertion, by_user, plan_scram
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.context import Context
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.metadata.scram_plans import UserChange
    from ottla.protocol.stored.metadata import MetadataRecord

NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER),)
CHUNKS = ()
USERS_PER_CHANGE: Final = 300
"""Users of one change of the metadata: 3 ms, and one batch of the metadata log."""


def handle(request: AlterUserScramCredentialsRequest, context: Context) -> Pending[AlterUserScramCredentialsResponse]:
    """Answer once the changes are on disk."""
    if not context.may(AclOperation.ALTER, ResourceType.CLUSTER):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    deletions = [Deletion(one.name, one.mechanism) for one in request.deletions]
    upsertions = [
        Upsertion(one.name, one.mechanism, one.iterations, one.salt, one.salted_password) for one in request.upsertions
    ]
    alteration = _Alteration(by_user([*deletions, *upsertions]), context)
    alteration.change_some()
    return alteration.answer


class _Alteration:
    """A request under way. It is carried out completely, even if its client has disconnected."""

    def __init__(self, users: Sequence[UserChange], context: Context) -> None:
        self.answer: Pending[AlterUserScramCredentialsResponse] = Pending(parks=len(users) > USERS_PER_CHANGE)
        self._rest = users
        self._context = context
        self._results: list[ScramResult] = []

    def change_some(self) -> None:
        """Change the next users."""
        users, self._rest = self._rest[:USERS_PER_CHANGE], self._rest[USERS_PER_CHANGE:]
        planned = ScramPlan([], [])

        def plan(image: MetadataImage) -> Sequence[MetadataRecord]:
            nonlocal planned
            planned = plan_scram(image, users)
            return planned.records

        def done(error: KafkaError | None) -> None:
            if error is None:
                self._results += planned.results
            else:
                self._results += [ScramResult(user.request.name, error.code, error.message) for user in users]
            if self._rest:
                self._context.later(self._go_on)
            else:
                self.answer.complete(self._response())

        self._context.services.catalog.change(plan, done)

    def _go_on(self) -> None:
        self._context.begin_step()
        try:
            self.change_some()
        except Exception as error:  # a bug, which the gate reports; the client must not wait for ever
            self.answer.fail(error)
        finally:
            self._context.end_step()

    def _response(self) -> AlterUserScramCredentialsResponse:
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                    user=result.user, error_code=result.error_code, error_message=result.error_message
                )
                for result in self._results
            ]
        )
