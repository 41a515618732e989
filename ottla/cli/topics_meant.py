"""A hint after the error for a topic that does not exist: the existing one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client import Admin, AdminError


@asynccontextmanager
async def topics_meant(admin: Admin) -> AsyncIterator[None]:
    """Add `Did you mean orders?` to an AdminError about `order`."""
    from ottla.client import AdminError

    try:
        yield
    except AdminError as refused:
        await _add_note(admin, refused)
        raise


async def _add_note(admin: Admin, refused: AdminError) -> None:
    from ottla.client import ErrorCode, KafkaError

    unknown = [name for name, error in refused.errors.items() if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    try:
        known = await admin.list_topics() if unknown else []
    except KafkaError:  # the refusal is enough
        return
    near = [difflib.get_close_matches(name, known, n=1) for name in unknown if name not in known]
    meant = list(dict.fromkeys(name for names in near for name in names))
    if meant:
        refused.add_note(f"Did you mean {', '.join(meant)}?")
