"""The check of a request's rights, as the module of its API declares them (`NEEDS`).

- A right to the cluster that every request of an API needs, or to a resource that a field names: without it the request
  is refused.
- A right to each element of a list: elements without it are removed from the request, answered as the API refuses them,
  and these answers are added to the others. So are topic ids that no topic has.
- The handler checks all other rights (`when`): it knows the resources.

As in Kafka's `AuthHelper`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.broker.security.authorizer import AUTHORIZATION_CODES
from ottla.protocol.acls import ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.declarations import Need
    from ottla.protocol.acls import AclOperation
    from ottla.protocol.api import Api
    from ottla.protocol.message import Request, Response


class Refused(NamedTuple):
    """The answers to elements that were taken out of a request, in `response`, in its list `answered`."""

    answered: str
    response: Response

    def beside(self, response: Response) -> Response:
        """The response to the other elements, with these answers added; an error of the whole request is for all."""
        if not getattr(response, "error_code", 0):
            answers = [*getattr(response, self.answered), *getattr(self.response, self.answered)]
            setattr(response, self.answered, answers)
        return response


def check_rights(needs: tuple[Need, ...], api: Api, request: Request, context: Context) -> Request:
    """The permitted part of the request; the rest is in `context.refused`. Raises KafkaError if that is all of it."""
    for need in needs:
        if not is_asked_by_gate(need) or (need.unless is not None and has_instead(need.unless, context)):
            continue
        if not need.named:
            if not context.may(need.operation, need.resource_type):
                code = AUTHORIZATION_CODES[need.resource_type]
                raise KafkaError(code, f"the request needs {need.operation.name} on the cluster")
        elif need.answered:
            request = _without_refused(need, api, request, context)
        else:
            name = getattr(request, need.named[0])
            if name is not None and not context.may(need.operation, need.resource_type, name):
                raise KafkaError(AUTHORIZATION_CODES[need.resource_type])
    return request


def is_asked_by_gate(need: Need) -> bool:
    """Whether the gate checks the right, not the handler."""
    return bool(need.named) or (need.resource_type is ResourceType.CLUSTER and not need.when)


def has_instead(right: tuple[AclOperation, ResourceType], context: Context) -> bool:
    """Whether the client has the right that replaces another one."""
    operation, resource_type = right
    if resource_type is ResourceType.CLUSTER:
        return context.has(operation, resource_type)
    return context.may_somewhere(operation, resource_type)


def _without_refused(need: Need, api: Api, request: Request, context: Context) -> Request:
    listed = need.named[0]
    permitted: list[object] = []
    refused: list[object] = []
    unknown: list[object] = []
    for element in getattr(request, listed) or ():
        name = _name_of(element, need, context)
        if name is None:
            unknown.append(element)
        else:
            (permitted if context.may(need.operation, need.resource_type, name) else refused).append(element)
    if not refused and not unknown:
        return request
    code = AUTHORIZATION_CODES[need.resource_type]
    if not permitted and not unknown:
        raise KafkaError(code)
    answers: list[object] = []
    response: Response | None = None
    for elements, reason in ((unknown, ErrorCode.UNKNOWN_TOPIC_ID), (refused, code)):
        if elements:
            asked = request.replace(**{listed: elements})
            response = api.refused(asked, context.api_version, reason, reason.message)
            assert response is not None  # every API with such a list has an answer to each of its elements
            answers.extend(getattr(response, need.answered))
    assert response is not None
    setattr(response, need.answered, answers)
    context.refused = Refused(need.answered, response)
    return request.replace(**{listed: permitted})


def _name_of(element: object, need: Need, context: Context) -> str | None:
    """The name of the resource of an element of the list; None if it has the id of no topic."""
    if len(need.named) == 1:
        return cast("str", element)
    if need.by_id is not None and context.api_version >= need.by_id.first_version:
        topic = context.services.catalog.topics_by_id.get(getattr(element, need.by_id.field))
        return None if topic is None else topic.name
    return cast("str", getattr(element, need.named[1]))
