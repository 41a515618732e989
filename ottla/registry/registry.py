"""What the registry does: registering, looking up, deleting, comparing, and its settings.

Reads are answered from the state as it is. A change is made by one request at a time: it reads the topic to its end,
decides, writes, and reads back what it has written. If another registry has written in between so that its record does
not count (`state.py`), it repairs the log and decides again. `decisions.py` has the decisions.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.registry.compatibility import Earlier, incompatibilities
from ottla.registry.decisions import (
    READ_ONLY,
    NewVersion,
    absolute,
    as_submitted,
    check_deletion,
    check_mode,
    check_referrers,
    has_versions,
    imported,
    named,
    resolve,
    version_of,
)
from ottla.registry.errors import (
    CONFLICT,
    LEVEL_NOT_CONFIGURED,
    MODE_NOT_CONFIGURED,
    STORE_FAILED,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    InvalidSchema,
    RegistryError,
    invalid_schema,
    not_permitted,
    schema_not_found,
    subject_not_found,
)
from ottla.registry.log import SchemaLog
from ottla.registry.names import normal_subject, split_context
from ottla.registry.records import PROTOBUF, Content, SchemaKey, ScopeKey, Stored, object_value, schema_value
from ottla.registry.requests import Submitted
from ottla.registry.resolved import Resolved
from ottla.registry.schema import Schema
from ottla.registry.schemas import parse_schema
from ottla.registry.state import DEFAULT_LEVEL, DEFAULT_MODE, State

MOST_RETRIES: Final = 5
"""Of a change whose record lost against another registry's."""
_KEPT_TEXTS: Final = 1_000
"""Canonical texts of schemas that clients have sent, so that a producer's start costs no parsing."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a submitted schema comes to."""

    content: Content
    references: Sequence[Resolved]


class Registry:
    """See the module. Every method raises RegistryError."""

    def __init__(self, log: SchemaLog) -> None:
        self.log = log
        self._changing = asyncio.Lock()
        self._parsing = asyncio.Semaphore(1)
        """One schema at a time is parsed or compared, on a thread: the others would not be quicker beside it."""
        self._texts: OrderedDict[tuple[object, ...], str] = OrderedDict()

    # -- schemas

    async def register(self, subject: str, submitted: Submitted, *, normalizes: bool) -> Stored:
        """The version of a schema in a subject, which is new if the subject does not have it."""
        state = await self.log.state()
        parsed = await self._parsed(state, subject, submitted, normalizes=normalizes)
        present = await self._present(state, subject, parsed.content)
        if present is not None and submitted.schema_id in (None, present.schema_id):
            return present
        async with self._changing:
            for _ in range(MOST_RETRIES):
                state = await self.log.caught_up()
                made = await self._decided(state, subject, submitted, normalizes=normalizes)
                if isinstance(made, Stored):
                    return made
                wanted = made.stored
                key = SchemaKey(wanted.subject, wanted.version)
                state = await self.log.write(key.to_bytes(), schema_value(wanted))
                if state.version(wanted.subject, wanted.version) == wanted:
                    return wanted
                await self._repair(state, key)
        raise RegistryError(STORE_FAILED, "another registry writes to the same topic, and was quicker each time")

    async def _decided(
        self, state: State, subject: str, submitted: Submitted, *, normalizes: bool
    ) -> Stored | NewVersion:
        check_mode(state, subject, submitted.schema_id)
        parsed = await self._parsed(state, subject, submitted, normalizes=normalizes)
        context = split_context(subject)[0]
        present = await self._present(state, subject, parsed.content)
        if submitted.schema_id is not None:
            return imported(state, context, subject, submitted, parsed.content)
        if present is not None:
            return present
        lines = await self._incompatibilities(state, subject, parsed, state.versions(subject), state.level(subject))
        if lines:
            raise RegistryError(
                CONFLICT,
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}", details: [{", ".join(lines)}]',
            )
        schema_id = state.id_of(context, parsed.content) or state.next_id(context)
        return NewVersion(Stored(subject, state.next_version(subject), schema_id, parsed.content))

    async def _repair(self, state: State, key: SchemaKey) -> None:
        """Make the record that counts the last one of its key: compaction keeps that one."""
        counts = state.version(key.subject, key.version)
        await self.log.write(key.to_bytes(), None if counts is None else schema_value(counts))

    async def look_up(self, subject: str, submitted: Submitted, *, normalizes: bool, with_deleted: bool) -> Stored:
        """The version of a subject that has a schema."""
        state = await self.log.state()
        if not state.versions(subject, with_deleted=with_deleted):
            raise subject_not_found(subject)
        parsed = await self._parsed(state, subject, submitted, normalizes=normalizes)
        found = await self._present(state, subject, parsed.content, with_deleted=with_deleted)
        if found is None:
            raise schema_not_found()
        return found

    async def version(self, subject: str, version: int | None, *, with_deleted: bool = False) -> Stored:
        """A version of a subject; None is the latest."""
        state = await self.log.state()
        return version_of(state, subject, version, with_deleted=with_deleted)

    async def by_id(self, schema_id: int, subject: str | None) -> Stored:
        """A version that has an id, in the context of the subject, if one is given."""
        context, name = split_context(normal_subject(subject or ""))
        holders = (await self.log.state()).holders(context, schema_id)
        if name:
            holders = [one for one in holders if one.subject == normal_subject(subject or "")] or holders
        if not holders:
            raise schema_not_found(schema_id)
        return holders[0]

    async def holders(self, schema_id: int, subject: str | None, *, with_deleted: bool) -> list[Stored]:
        """All versions that have an id."""
        context = split_context(normal_subject(subject or ""))[0]
        holders = (await self.log.state()).holders(context, schema_id)
        if not holders:
            raise schema_not_found(schema_id)
        return [one for one in holders if with_deleted or not one.is_deleted]

    async def formatted(self, stored: Stored, form: str) -> str:
        """The text of a version, in a form that its type has; else as it is stored."""
        if not form:
            return stored.content.text
        state = await self.log.state()
        content = stored.content
        schema = await self._parse(content.type, content.text, resolve(state, stored.subject, content.references))
        return schema.formatted(form) or content.text

    # -- deletion

    async def delete_subject(self, subject: str, *, is_permanent: bool) -> list[int]:
        """Delete all versions of a subject, and return their numbers."""
        async with self._changing:
            state = await self.log.caught_up()
            check_deletion(state, subject)
            all_versions, kept = state.versions(subject, with_deleted=True), state.versions(subject)
            if not all_versions:
                raise subject_not_found(subject)
            if is_permanent:
                if kept:
                    line = f"Subject '{subject}' was not deleted first before being permanently deleted"
                    raise RegistryError(SUBJECT_NOT_SOFT_DELETED, line)
                for one in all_versions:
                    check_referrers(state, one)
                for one in all_versions:
                    await self.log.write(SchemaKey(subject, one.version).to_bytes(), None)
                return [one.version for one in all_versions]
            if not kept:
                line = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
                raise RegistryError(SUBJECT_SOFT_DELETED, line)
            for one in kept:
                check_referrers(state, one)
            value = object_value({"subject": subject, "version": kept[-1].version})
            await self.log.write(ScopeKey("DELETE_SUBJECT", subject).to_bytes(), value)
            await self._forget_settings(subject)
            return [one.version for one in kept]

    async def delete_version(self, subject: str, version: int | None, *, is_permanent: bool) -> int:
        """Delete a version of a subject, and return its number."""
        async with self._changing:
            state = await self.log.caught_up()
            check_deletion(state, subject)
            stored = version_of(state, subject, version, with_deleted=True)
            check_referrers(state, stored)
            key = SchemaKey(subject, stored.version)
            where = f"Subject '{subject}' Version {stored.version}"
            if is_permanent and not stored.is_deleted:
                line = f"{where} was not deleted first before being permanently deleted"
                raise RegistryError(VERSION_NOT_SOFT_DELETED, line)
            if not is_permanent and stored.is_deleted:
                line = f"{where} was soft deleted.Set permanent=true to delete permanently"
                raise RegistryError(VERSION_SOFT_DELETED, line)
            state = await self.log.write(key.to_bytes(), None if is_permanent else schema_value(stored.deleted()))
            if not is_permanent and not state.versions(subject):
                await self._forget_settings(subject)
            return stored.version

    async def _forget_settings(self, subject: str) -> None:
        """The level and the mode of a subject end with it."""
        state = await self.log.state()
        if subject in state.configs:
            await self.log.write(ScopeKey("CONFIG", subject).to_bytes(), None)
        if subject in state.modes:
            await self.log.write(ScopeKey("MODE", subject).to_bytes(), None)

    # -- compatibility

    async def compare(
        self, subject: str, submitted: Submitted, version: int | str | None, *, normalizes: bool
    ) -> list[str]:
        """Why a schema may not follow a version of a subject (None: the latest; "all": those that its level names)."""
        state = await self.log.state()
        level = state.level(subject)
        if version == "all":
            earlier = state.versions(subject)
        else:
            assert not isinstance(version, str)
            earlier = [version_of(state, subject, version)]
        parsed = await self._parsed(state, subject, submitted, normalizes=normalizes)
        return await self._incompatibilities(state, subject, parsed, earlier, level)

    async def _incompatibilities(
        self, state: State, subject: str, parsed: Parsed, earlier: Sequence[Stored], level: str
    ) -> list[str]:
        compared = [
            Earlier(
                one.version,
                one.content.type,
                one.content.text,
                resolve(state, subject, one.content.references),
            )
            for one in earlier
        ]
        content = parsed.content

        def work() -> list[str]:
            schema = parse_schema(content.type, content.text, parsed.references)
            return incompatibilities(level, schema, compared)

        try:
            async with self._parsing:
                return await asyncio.to_thread(work)
        except InvalidSchema as error:
            raise invalid_schema(error) from None

    # -- settings

    async def config(self, subject: str | None, *, falls_back: bool) -> dict[str, Any]:
        """The settings of a subject, or of all."""
        state = await self.log.state()
        own = dict(state.configs.get(subject, {}))
        if subject is None:
            return {"compatibilityLevel": DEFAULT_LEVEL, **own}
        if falls_back:
            normalizes = state.config(subject, "normalize")
            more = {} if normalizes is None else {"normalize": normalizes}
            return {"compatibilityLevel": state.level(subject), **more}
        if not own:
            line = f"Subject '{subject}' does not have subject-level compatibility configured"
            raise RegistryError(LEVEL_NOT_CONFIGURED, line)
        return own

    async def set_config(self, subject: str | None, settings: dict[str, Any]) -> None:
        """Set the settings that are given; others stay."""
        async with self._changing:
            state = await self.log.caught_up()
            if state.mode(subject or "") in READ_ONLY:
                raise not_permitted(f"{named(subject)} is in read-only mode")
            value = object_value({**state.configs.get(subject, {}), **settings})
            await self.log.write(ScopeKey("CONFIG", subject).to_bytes(), value)

    async def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Forget the settings of a subject, or of all, and return what they were."""
        async with self._changing:
            state = await self.log.caught_up()
            if state.mode(subject or "") in READ_ONLY:
                raise not_permitted(f"{named(subject)} is in read-only mode")
            own = dict(state.configs.get(subject, {}))
            if not own and subject is not None:
                line = f"Subject '{subject}' does not have subject-level compatibility configured"
                raise RegistryError(LEVEL_NOT_CONFIGURED, line)
            await self.log.write(ScopeKey("CONFIG", subject).to_bytes(), None)
            return {"compatibilityLevel": DEFAULT_LEVEL, **own} if subject is None else own

    async def mode(self, subject: str | None, *, falls_back: bool) -> str:
        """The mode of a subject, or of all."""
        state = await self.log.state()
        if subject is None:
            return state.modes.get(None, DEFAULT_MODE)
        if subject in state.modes:
            return state.modes[subject]
        if falls_back:
            return state.mode(subject)
        raise RegistryError(MODE_NOT_CONFIGURED, f"Subject '{subject}' does not have subject-level mode configured")

    async def set_mode(self, subject: str | None, mode: str, *, is_forced: bool) -> None:
        """Set a mode. IMPORT needs a subject, or a registry, without versions, unless it is forced."""
        async with self._changing:
            state = await self.log.caught_up()
            if mode == "IMPORT" and not is_forced and has_versions(state, subject):
                raise not_permitted("Cannot import since found existing subjects")
            await self.log.write(ScopeKey("MODE", subject).to_bytes(), object_value({"mode": mode}))

    async def delete_mode(self, subject: str) -> str:
        """Forget the mode of a subject, and return what it was."""
        async with self._changing:
            state = await self.log.caught_up()
            if subject not in state.modes:
                line = f"Subject '{subject}' does not have subject-level mode configured"
                raise RegistryError(MODE_NOT_CONFIGURED, line)
            mode = state.modes[subject]
            await self.log.write(ScopeKey("MODE", subject).to_bytes(), None)
            return mode

    # -- parsing

    async def _parsed(self, state: State, subject: str, submitted: Submitted, *, normalizes: bool) -> Parsed:
        normalizes = normalizes or state.config(subject, "normalize") is True
        references = tuple(absolute(state, subject, one) for one in submitted.references)
        resolved = resolve(state, subject, references)
        asked = (submitted.type, submitted.text, tuple(resolved), normalizes)
        text = self._texts.get(asked)
        if text is None:
            text = (await self._parse(submitted.type, submitted.text, resolved, normalizes=normalizes)).text
            self._texts[asked] = text
            if len(self._texts) > _KEPT_TEXTS:
                self._texts.popitem(last=False)
        content = Content(submitted.type, text, references, submitted.metadata, submitted.rule_set)
        return Parsed(content, resolved)

    async def _present(
        self, state: State, subject: str, content: Content, *, with_deleted: bool = False
    ) -> Stored | None:
        """The newest version of a subject that has a schema.

        Other registries write Protobuf in texts of their own: what they have stored is brought into ours to compare.
        """
        for one in reversed(state.versions(subject, with_deleted=with_deleted)):
            if one.content == content:
                return one
            if content.type == one.content.type == PROTOBUF and replace(one.content, text=content.text) == content:
                try:
                    ours = await self._parsed(state, subject, as_submitted(one), normalizes=False)
                except RegistryError:  # what this registry would refuse
                    continue
                if ours.content.text == content.text:
                    return one
        return None

    async def _parse(self, kind: str, text: str, references: Sequence[Resolved], *, normalizes: bool = False) -> Schema:
        try:
            async with self._parsing:
                return await asyncio.to_thread(parse_schema, kind, text, references, normalizes=normalizes)
        except InvalidSchema as error:
            raise invalid_schema(error) from None
