"""Planted bugs of streams groups, which show where there are some (`streams_worlds.py`)."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from kit.simulator import planting
from kit.simulator.planting import before, no, nothing

from ottla.broker.coordination.effects import Effects
from ottla.broker.coordination.writes import release
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.streams import heartbeats, reconciliation
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.broker.groups.streams.state import StreamsGroupState
from ottla.broker.groups.streams.step import StreamsStep
from ottla.protocol.stored.group import StreamsGroupCurrentMemberAssignmentKey

bug = partial(planting.bug, streams=True)


@bug("streams: a task is given before it is given up", "nobody looks whether another member still has it")
def _given_early() -> Any:
    return mock.patch.object(StreamsGroupState, "active_process", nothing)


@bug("streams: silence gives up tasks", "a heartbeat that reports nothing counts as one that has given up all")
def _silence() -> Any:
    def replace(still_has: Any) -> Any:
        def patched(tasks: Any, owned: Any) -> bool:
            return owned is not None and bool(still_has(tasks, owned))

        return patched

    return before(reconciliation, "_still_has", replace)


@bug("streams: an old epoch is not fenced", "a heartbeat may have any epoch")
def _not_fenced() -> Any:
    return mock.patch.object(heartbeats, "check_member_epoch", nothing)


@bug("streams: an old member commits", "a commit may have the epoch of a task that the member has no more")
def _old_commits() -> Any:
    def replace(check: Any) -> Any:
        def patched(self: StreamsGroup, member_id: str, *rest: Any, **more: Any) -> Any:
            return check(self, member_id, *rest, **more) if member_id in self.durable.members else None

        return patched

    return before(StreamsGroup, "check_commit", replace)


@bug("streams: answered before it is durable", "members get answers that a power cut may take back")
def _answered_early() -> Any:
    def replace(finish: Any) -> Any:
        def patched(self: GroupShard, key: str, effects: Effects) -> None:
            replies: list[Any] = []
            if isinstance(self.groups.get(key), StreamsGroup):
                replies, effects.replies = effects.replies, []
            finish(self, key, effects)
            release(replies)(None)

        return patched

    return before(GroupShard, "finish", replace)


@bug("streams: what a member has is not written", "its progress is in memory alone")
def _not_written() -> Any:
    def write(self: StreamsStep, record: Any) -> None:
        if not isinstance(record[0], StreamsGroupCurrentMemberAssignmentKey) or record[1] is None:
            self.effects.records.append(record)
        self._state.replay(*record)

    return mock.patch.object(StreamsStep, "write", write)


@bug("streams: a start begins no sessions", "members that are silent since then stay for ever")
def _no_sessions() -> Any:
    def on_load(self: StreamsGroup, now: Any) -> Effects:
        return Effects()

    return mock.patch.object(StreamsGroup, "on_load", on_load)


@bug("streams: a member that leaves comes back", "the tombstones of members are not written")
def _no_tombstones() -> Any:
    def write(self: StreamsStep, record: Any) -> None:
        if record[1] is not None:
            self.effects.records.append(record)
        self._state.replay(*record)

    return mock.patch.object(StreamsStep, "write", write)


@bug(
    "streams: a lost answer is not repeated",
    "a member that reports other tasks than it has does not get its tasks again",
)
def _not_repeated() -> Any:
    return mock.patch.object(heartbeats, "_has_others", no)


@bug("streams: topics that change are not seen", "a topology is compared with the topics once")
def _topics_once() -> Any:
    def replace(configure: Any) -> Any:
        def patched(self: StreamsGroup, topology: Any) -> Any:
            known = self.configured
            return configure(self, topology) if known is None else (self.durable.metadata_hash, known)

        return patched

    return before(StreamsGroup, "configure", replace)
