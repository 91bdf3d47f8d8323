"""The cluster and the node that a client expects at an address (ApiVersions 5, KIP-1242)."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_NODE: Final = -1
"""The node ID of a request that does not expect a particular node."""


class NodeIdentity(NamedTuple):
    """A node of a cluster, as in ApiVersions 5; None with -1 means any node."""

    cluster_id: str | None
    node_id: int
