"""DescribeUserScramCredentials, version 0: the SCRAM mechanisms of users, without their secrets (KIP-554).

Kafka's `ScramImage.describe`: a user that is named twice, or has no credentials, gets its own error.
"""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.runtime.steps import Pace
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.runtime.steps import Steps
    from ottla.protocol.stored.metadata import UserScramCredentialRecord

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),)
CHUNKS = ()

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Info = DescribeUserScramCredentialsResponse.CredentialInfo


def handle(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse | Pending[DescribeUserScramCredentialsResponse]:
    """Answer immediately if there are few credentials."""
    if not context.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return context.in_steps(_describe(request, context.services.catalog.image.scram_credentials))


def _describe(
    request: DescribeUserScramCredentialsRequest, credentials: Mapping[tuple[int, str], UserScramCredentialRecord]
) -> Steps[DescribeUserScramCredentialsResponse]:
    infos: dict[str, list[Info]] = {}
    pace = Pace()
    for (mechanism, user), credential in sorted(credentials.items(), key=itemgetter(0)):
        infos.setdefault(user, []).append(Info(mechanism=mechanism, iterations=credential.iterations))
        if pace.is_up():
            yield
    times = Counter([user.name for user in request.users] if request.users else list(infos))
    results = yield from pace.made(lambda user: _result(user, times[user], infos.get(user, [])), times)
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _result(user: str, times: int, infos: list[Info]) -> Result:
    if times > 1:
        code, text = (
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: ",
        )
    elif not infos:
        code, text = ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist: "
    else:
        return Result(user=user, error_message="", credential_infos=infos)  # as Kafka: not null
    return Result(user=user, error_code=code, error_message=text + user, credential_infos=[])
