"""ShareFetch (key 78), versions 1-2: give records to a share group's member, and take its acknowledgements (KIP-932).

What comes of it: `share/share_fetch.py` and `share/share_partition.py`. UNSUPPORTED_VERSION where share groups are not
served.
"""

from __future__ import annotations

from functools import partial
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
    may_read = partial(context.may, AclOperation.READ, ResourceType.TOPIC)
    return context.services.share_groups.get().fetch(request, context, may_read)
