"""The one place where tests look into the bundled client: what it knows of the cluster, and what a blocking one drives.

A test asks here for what no user needs: to have the view refreshed at once, or to see that two uses share connections.
"""

from __future__ import annotations

from typing import Any


def asyncio_client(blocking: Any) -> Any:
    """The asyncio client inside of a blocking one."""
    return blocking._inner


def cluster_view(client: Any) -> Any:
    """The view of the cluster and its connections, of an asyncio client or of the one inside of a blocking one; None
    before it has started.
    """
    return getattr(client, "_inner", client)._cluster
