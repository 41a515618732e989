"""The clients of a simulation with an authorizer: who changes ACLs, and who meets them where templates answer.

A producer and readers that stay with one partition, so that their requests look alike and are answered from templates;
readers that wait for more, without a session and in one. All others of the simulation are users, too (`World`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kit.simulator.acl_administrator import AclAdministrator
from kit.simulator.followers import WAIT_MS, Follower, Where
from kit.simulator.model import Model, Violation
from kit.simulator.needed_rights import topic_need
from kit.simulator.producers import PlainProducer, Values
from kit.simulator.quota_administrator import QuotaAdministrator
from kit.simulator.readers import MOST_BYTES
from kit.simulator.rights import Answered, Rights
from kit.simulator.users import READER, SUPER_USER, WRITER, User

from ottla.broker.security.quotas.limits import PRODUCE
from ottla.protocol.acls import AclOperation
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.clients import Line

SESSION_VERSION: Final = 16
USERS: Final = (WRITER, READER, WRITER, READER, READER)
"""Of the lines: who produces; two that follow one partition; one that follows all, in a session; who looks around."""
PRODUCER, FOLLOWERS, IN_SESSION, LOOKS = 0, (1, 2), 3, 4
QUOTA_USERS: Final = ("nobody", "no one")
"""No client is one of them: that a change survives is what is asked here. Clients under quotas are in other worlds."""
MOVES: Final = 0.04
"""How often they go to another partition."""

Operation = tuple[float, Callable[[], None]]


def _drawn_quota(chance: random.Random, _: str) -> dict[str, float | None]:
    return {PRODUCE: None if chance.random() < 0.3 else float(chance.randint(1, 1 << 30))}


class RightsClients:
    """See the module. `lines` are given anew for each life of the broker, and the administrator's `admin_line`.

    `settle` lets the broker finish what it has under way, and clients take their answers.
    """

    def __init__(
        self, model: Model, values: Values, chance: random.Random, clock: ManualClock, *, open_without: bool
    ) -> None:
        self.rights = Rights(open_without=open_without)
        self.quotas = QuotaAdministrator(chance, [("user", name) for name in QUOTA_USERS], _drawn_quota)
        self._acls = AclAdministrator(self.rights, chance)
        self._model = model
        self._chance = chance
        self._clock = clock
        self._plain = PlainProducer(model, values, chance)
        self._acks = -1
        self._followers = [Follower(model, chance) for _ in FOLLOWERS]
        self._in_session = SessionFollower(model, chance, self.rights)
        self._where: Where | None = None
        self.lines: list[Line] = []
        self.admin_line: Line
        self.settle: Callable[[], None]
        values.on_drawn = self.rights.note_written

    def operations(self) -> list[Operation]:
        """What may happen, and how often."""
        return [
            (14, self._change_acls),
            (2, self._change_quotas),
            (16, self._produce),
            (14, self._follow),
            (12, self._follow_in_session),
            (5, self._take_away),
            (1, self._look_around),
        ]

    def user(self, line: int) -> User:
        """Who is at one of `lines`."""
        return User(USERS[line], self._model, self.rights)

    def super_user(self) -> User:
        """Who administers, and audits."""
        return User(SUPER_USER, self._model)

    def writer(self) -> User:
        """Producers."""
        return User(WRITER, self._model, self.rights)

    def reader(self) -> User:
        """Readers and members of groups."""
        return User(READER, self._model, self.rights)

    def reconnect(self) -> None:
        """The broker has restarted."""
        self._acls.reconnect()
        self.quotas.reconnect()
        for follower in (self._in_session, *self._followers):
            follower.reconnect()

    def _change_acls(self) -> None:
        self._acls.change(self.admin_line, None if self._where is None else self._where[0].name)

    def _change_quotas(self) -> None:
        self.quotas.change(self.admin_line)

    def _place(self) -> Where | None:
        """A partition; mostly that of before."""
        model, where = self._model, self._where
        names = sorted(model.topics.keys() - model.deleting)
        if where is None or not self._is_there(where) or self._chance.random() < MOVES:
            where = None
            if names:
                topic = model.topics[self._chance.choice(names)]
                where = topic, self._chance.randrange(len(topic.partitions))
            self._where, self._acks = where, self._chance.choice((-1, -1, 1))
        return where

    def _produce(self) -> None:
        where = self._place()
        if where is not None:
            self._write(where)

    def _follow(self) -> None:
        where = self._place()
        if where is not None:
            number = self._chance.randrange(len(FOLLOWERS))
            self._followers[number].follow(self.lines[FOLLOWERS[number]], *where)

    def _follow_in_session(self) -> None:
        self._in_session.follow(self.lines[IN_SESSION])

    def _take_away(self) -> None:
        """Let a reader wait, take its right away, and write what it waits for.

        Before that it reads so often that a template may answer it: at one stamp of the broker, without other changes.
        """
        where = self._place()
        if where is None:
            return
        number = self._chance.randrange(len(FOLLOWERS) + 1)
        follower = [*self._followers, self._in_session][number]
        number_of_line = [*FOLLOWERS, IN_SESSION][number]
        line = self.lines[number_of_line]
        for _ in range(self._chance.randrange(4)):
            self._write(where)
            self.settle()
            follower.follow(line, *where)
            self.settle()
        follower.follow(line, *where)
        self.settle()
        if follower.awaited and self._is_there(where):
            self._acls.deny(self.admin_line, USERS[number_of_line], where[0].name)
            if self._chance.random() < 0.8:
                self.settle()
            self._write(where)

    def _write(self, where: Where) -> None:
        if self._is_there(where):
            self._plain.send_to(self.lines[PRODUCER], *where, self._acks, self._clock.wall_ms())

    def _is_there(self, where: Where) -> bool:
        topic, model = where[0], self._model
        return model.topics.get(topic.name) is topic and topic.name not in model.deleting

    def _look_around(self) -> None:
        """Metadata of all topics: those that the user may describe."""
        rights, since, who = self.rights, self.rights.now, USERS[LOOKS]
        known = {name: topic.id for name, topic in self._model.topics.items()}

        def answered(response: Response) -> None:
            assert isinstance(response, MetadataResponse)
            seen = {topic.name for topic in response.topics}
            for name, topic_id in known.items():
                topic = self._model.topics.get(name)
                if topic is None or topic.id != topic_id or name in self._model.deleting:
                    continue
                need = topic_need(AclOperation.DESCRIBE, name)
                if (name in seen) not in rights.possible(who, need, since):
                    raise Violation(f"{who.principal} is shown {sorted(map(str, seen))}; {name} is wrong")

        self.lines[LOOKS].send(MetadataRequest(topics=None), 12, answered)


class SessionFollower(Follower):
    """Waits for more of all partitions, in one session."""

    def __init__(self, model: Model, chance: random.Random, rights: Rights) -> None:
        super().__init__(model, chance)
        self._rights = rights
        self._who = USERS[IN_SESSION]
        self._session = (0, 0)
        """Its id and its epoch."""
        self._named: dict[tuple[UUID, int], int] = {}
        """Where the session is in each partition, as it was named last."""

    def reconnect(self) -> None:
        """Also a new session."""
        super().reconnect()
        self._session, self._named = (0, 0), {}

    def follow(self, line: Line, *_: object) -> None:
        """Go on in the session: name what is new, and where it has got on."""
        if self.awaited:
            return
        model = self._model
        session_id, epoch = self._session
        topics = {topic.id: topic for name, topic in model.topics.items() if name not in model.deleting}
        begun = {
            (topic.id, index): self._begin(topic, index)
            for topic in sorted(topics.values(), key=lambda one: one.name)
            for index in range(len(topic.partitions))
        }
        if not begun:
            return
        self.awaited = [(topics[topic_id], index) for topic_id, index in begun]
        if not epoch:
            self._named = {}
        forgotten = [place for place in self._named if place not in begun]
        named = [place for place, (position, _) in begun.items() if self._named.get(place) != position]
        self._named = {place: position for place, (position, _) in begun.items()}
        since = self._rights.now

        def answered(response: Response) -> None:
            assert isinstance(response, FetchResponse)
            self.awaited = []
            if response.error_code != ErrorCode.NONE:
                self._session, self._named = (0, 0), {}
                return
            self._session = response.session_id, epoch + 1
            answers = {
                (one.topic_id, data.partition_index): data for one in response.responses for data in one.partitions
            }
            for place, (position, deleted_before) in begun.items():
                topic = topics[place[0]]
                if model.topics.get(topic.name) is not topic or topic.name in model.deleting:
                    continue
                answer = answers.get(place)
                if answer is not None:
                    self._take(topic, place[1], position, deleted_before, answer)
                else:  # which says that there is nothing new
                    need = topic_need(AclOperation.READ, topic.name)
                    nothing = Answered(f"{topic.name}-{place[1]}, left out,", (need,), 0)
                    self._rights.require(self._who, [nothing], since, "a session")

        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchRequest.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=index, fetch_offset=begun[topic_id, index][0], partition_max_bytes=MOST_BYTES
                        )
                        for one, index in named
                        if one == topic_id
                    ],
                )
                for topic_id in dict.fromkeys(one for one, _ in named)
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[index]) for topic_id, index in forgotten
            ],
        )
        line.send(request, SESSION_VERSION, answered)
