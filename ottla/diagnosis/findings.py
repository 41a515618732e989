"""The findings about a group of any type: asks for the facts, and diagnoses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.diagnosis.group_diagnosis import Finding, diagnose, without_coordinator
from ottla.diagnosis.group_facts import WITHOUT_COORDINATOR, describe_if_there, facts_of, is_share

if TYPE_CHECKING:
    from ottla.client import Admin
    from ottla.diagnosis.unread import OpenReader


async def findings_about(admin: Admin, group_id: str, open_reader: OpenReader) -> list[Finding]:
    """Return the findings, the most important first. Raises KafkaError; a group without a coordinator is a finding.

    `open_reader` opens a consumer, which looks whether there are records where a group has a lag.
    """
    from ottla.client import KafkaError
    from ottla.diagnosis.share_diagnosis import diagnose_share
    from ottla.diagnosis.share_facts import share_facts_of

    try:
        group = await describe_if_there(admin, group_id)
        if is_share(group):
            return diagnose_share(await share_facts_of(admin, group))
        return diagnose(await facts_of(admin, group_id, group, open_reader))
    except KafkaError as error:
        if error.code not in WITHOUT_COORDINATOR:
            raise
        return [without_coordinator(error.message)]
