"""The users of a simulation with an authorizer: whose a connection is, and whether it gets what it may get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from kit.simulator.model import Model
from kit.simulator.needed_rights import JUDGES, topic_need
from kit.simulator.readers import stored_records
from kit.simulator.rights import Rights, Who

from ottla.protocol.acls import AclOperation
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.message import Request, Response

SUPER_USER = Who("User:admin", "192.0.2.7")
WRITER = Who("User:writer", "192.0.2.7")
READER = Who("User:reader", "192.0.2.8")


@dataclass(frozen=True)
class User:
    """A client that is at a connection. Answers to a super user need no right: it has no `rights`."""

    who: Who
    model: Model
    rights: Rights | None = None

    def judged(self, request: Request, then: Callable[[Response], None]) -> Callable[[Response], None]:
        """`then`, once the answer to the request, which is sent now, is found to be one that the user may get."""
        rights, judge = self.rights, JUDGES.get(type(request))
        if rights is None or judge is None:
            return then
        since = rights.now

        def answered(response: Response) -> None:
            names = {topic.id: topic.name for topic in self.model.topics.values()}
            rights.require(self.who, judge(request, response, names), since, type(request).__name__)
            if isinstance(response, FetchResponse):
                self._require_shown(rights, response, names, since)
            then(response)

        return answered

    def _require_shown(self, rights: Rights, response: FetchResponse, names: Mapping[UUID, str], since: int) -> None:
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id)
            if name is None:
                continue
            for one in topic.partitions:
                values = [record.value for record in stored_records(bytes(one.records or b"")).values()]
                if values:
                    need, place = topic_need(AclOperation.READ, name), f"{name}-{one.partition_index}"
                    rights.require_shown(self.who, need, values, since, place)
