"""ShareFetch (key 78), versions 1-2: give records to a share group's member, and take its acknowledgements (KIP-932).

What comes of it: `share/share_fetch.py` and `share/share_partition.py`. UNSUPPORTED_VERSION where share groups are not
served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.share.settings import check_share_groups
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.share_fetch import ShareFetchRequest, ShareFetchResponse

NEEDS = (
    Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),
    Need(
        AclOperation.READ,
        ResourceType.TOPIC,
        when="partitions are fetched or acknowledged",
        lacking="the partitions of the topic are refused",
    ),
)
CHUNKS = ()


def handle(request: ShareFetchRequest, context: Context) -> Pending[ShareFetchResponse]:
    """Answer with what was acquired, at once or when there is something."""
    check_share_groups(context.services.catalog)
    return context.services.share_groups.get().fetch(request, context, _may_read(context))


def _may_read(context: Context) -> Callable[[str], bool]:
    """Whether the client may read a topic. The audit log gets it once for each request, which may look often."""
    asked: set[str] = set()

    def may_read(topic: str) -> bool:
        ask = context.has if topic in asked else context.may
        asked.add(topic)
        return ask(AclOperation.READ, ResourceType.TOPIC, topic)

    return may_read
