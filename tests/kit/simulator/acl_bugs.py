"""Planted bugs of rights: each lets a client do what no state of the ACLs has allowed, or forgets a change of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from kit.simulator.planting import before, bug, nothing

from ottla.broker.api import fetch as fetch_api
from ottla.broker.catalog.settings import Settings
from ottla.broker.context import Context
from ottla.broker.fast import parked_templates
from ottla.broker.fetch.fetch_read import FetchRead
from ottla.broker.fetch.fetch_rights import reading_rights
from ottla.broker.fetch.parked_fetches import ParkedFetch
from ottla.broker.metadata import image, journal
from ottla.broker.metadata.acl_plans import AclResult
from ottla.broker.metadata.acls import Acl
from ottla.broker.metadata.change_requests import QuotaResult
from ottla.broker.metadata.changes import ChangeQueue
from ottla.broker.security.acls import standard_authorizer
from ottla.broker.security.acls.index import AclIndex, acls_of_client
from ottla.broker.security.acls.standard_authorizer import StandardAuthorizer
from ottla.protocol.acls import PatternType, PermissionType
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.errors import ErrorCode
from ottla.protocol.stored.metadata import RemoveAccessControlEntryRecord


@bug("templates outlive a change of rights", "an ACL comes or goes, and requests are answered as before", acls=True)
def _templates_stay() -> Any:
    def replace(init: Any) -> Any:
        def patched(self: StandardAuthorizer, **given: Any) -> None:
            init(self, **given)
            self._on_change = nothing

        return patched

    return before(StandardAuthorizer, "__init__", replace)


@bug("decisions outlive a change of rights", "what was decided about a client is not decided again", acls=True)
def _decisions_stay() -> Any:
    class Kept(dict[tuple[object, ...], bool]):
        def clear(self) -> None:
            """Not."""

    def replace(init: Any) -> Any:
        def patched(self: StandardAuthorizer, **given: Any) -> None:
            init(self, **given)
            self._decisions = Kept()

        return patched

    return before(StandardAuthorizer, "__init__", replace)


@bug("a denial loses", "an ACL that allows wins over one that denies", acls=True)
def _denial_loses() -> Any:
    def replace(decide: Any) -> Any:
        def patched(self: StandardAuthorizer, *asked: Any) -> bool:
            if decide(self, *asked):
                return True
            with mock.patch.object(standard_authorizer, "acls_of_client", _allowing_ones):
                is_allowed: bool = decide(self, *asked)
                return is_allowed

        return patched

    return before(StandardAuthorizer, "_decide", replace)


def _allowing_ones(*asked: Any) -> Iterator[Acl]:
    return (acl for acl in acls_of_client(*asked) if acl.permission_type == PermissionType.ALLOW)


@bug("a prefix takes others with it", "with the last ACL of a prefix go those of as long ones", acls=True)
def _prefix_takes_others() -> Any:
    def replace(remove: Any) -> Any:
        def patched(self: AclIndex, acl_id: Any) -> None:
            acl = self._acls[acl_id]
            remove(self, acl_id)
            if acl.pattern_type == PatternType.PREFIXED:
                self._types[acl.resource_type].lengths.pop(len(acl.resource_name), None)

        return patched

    return before(AclIndex, "remove", replace)


@bug("a refused answer is remembered", "a template is learnt from a request that was refused", acls=True)
def _refusal_learnt() -> Any:
    def replace(may: Any) -> Any:
        def patched(self: Context, *asked: Any) -> bool:
            is_allowed: bool = may(self, *asked)
            self.lacks_rights = False
            return is_allowed

        return patched

    return before(Context, "may", replace)


@bug("a session keeps a topic", "its right is asked for when a topic comes into a session, and not again", acls=True)
@contextmanager
def _session_keeps_topic() -> Iterator[None]:
    def once(request: FetchRequest, *given: Any) -> Callable[[str], bool] | None:
        return (lambda _: True) if request.session_epoch > 0 and not request.topics else reading_rights(request, *given)

    with mock.patch.object(fetch_api, "reading_rights", once):
        yield


@bug("a parked template does not ask again", "records reach a Fetch that has waited, and lost its right", acls=True)
def _parked_stays() -> Any:
    class AnyStamp(int):
        def __eq__(self, _: object) -> bool:
            return True

        __hash__ = int.__hash__

    def replace(init: Any) -> Any:
        def patched(self: ParkedFetch, deadlines: Any, stamp: int) -> None:
            init(self, deadlines, AnyStamp(stamp))

        return patched

    return before(ParkedFetch, "__init__", replace)


@bug("a Fetch falls back without asking", "a parked one that takes the slow path reads as nobody", acls=True)
def _falls_back_as_nobody() -> Any:
    return mock.patch.object(parked_templates, "reading_rights", return_value=None)


@bug("a waiting Fetch does not ask again", "on the slow path, where it is woken by new records", acls=True)
def _waits_as_before() -> Any:
    def replace(look_again: Any) -> Any:
        def patched(self: FetchRead, *given: Any) -> bool:
            self._may_read = None
            is_enough: bool = look_again(self, *given)
            return is_enough

        return patched

    return before(FetchRead, "look_again", replace)


@bug("an ACL acknowledged before its sync", "CreateAcls and DeleteAcls answer when the change is written", acls=True)
def _acl_before_sync() -> Any:
    def replace(change: Any) -> Any:
        def patched(self: Settings, plan: Any, count: int, done: Callable[[Sequence[AclResult]], None]) -> None:
            result: list[Sequence[AclResult]] = []

            def planned(metadata: Any) -> Any:
                made = plan(metadata)
                if self.on_acls_changed is not None and made.records:
                    self.on_acls_changed(made.records)
                result.append(made.results)
                done(made.results)
                return made

            with mock.patch.object(self, "on_acls_changed", None):
                change(self, planned, count, lambda failed: None if result else done(failed))

        return patched

    return before(Settings, "_change_acls", replace)


@bug("a start without ACLs", "the authorizer of a broker that starts has only those that are added then", acls=True)
def _start_without_acls() -> Any:
    return mock.patch.object(StandardAuthorizer, "load", nothing)


@bug("a snapshot without ACLs", "they are forgotten once a snapshot takes the place of their records", acls=True)
def _snapshot_without_acls() -> Any:
    def replace(records_of: Any) -> Any:
        def patched(whole: image.MetadataImage) -> Any:
            with mock.patch.object(whole, "acls", {}):
                return records_of(whole)

        return patched

    return before(journal, "records_of", replace)


@bug("removed ACLs come back", "a start replays what was added, and not what was removed", acls=True)
def _acls_come_back() -> Any:
    return mock.patch.dict(image._REPLAY, {RemoveAccessControlEntryRecord: nothing})


@bug(
    "nothing to do counts as done",
    "after a failed sync an ACL is acknowledged as there, whose removal may be on the disk",
    theme="failing disk",
    acls=True,
)
def _nothing_to_do() -> Any:
    return mock.patch.object(ChangeQueue, "_failure", property(nothing, nothing), create=True)


@bug("a quota acknowledged before its sync", "AlterClientQuotas answers when the change is written", acls=True)
def _quota_before_sync() -> Any:
    def replace(alter: Any) -> Any:
        def patched(self: Settings, requests: Sequence[Any], done: Any, **more: Any) -> None:
            alter(self, requests, nothing, **more)
            done([QuotaResult(ErrorCode.NONE, None) for _ in requests])

        return patched

    return before(Settings, "alter_quotas", replace)
