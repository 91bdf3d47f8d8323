"""Shell: Keeping this controller's entry in the voter set true: UpdateRaftVoter (KIP-853).

With kraft.version 1 the addresses of the voters stand in the log. A voter that now listens
elsewhere, or supports other kraft.versions, tells the leader; the leader writes its own entry
itself. It looks once per fetch timeout, so what fails is simply tried again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from metalog.quorum import wire
from metalog.quorum.core.voters import Voter
from protocol.errors import ApiError, ErrorCode, ProtocolError
from runtime.log import get_logger

if TYPE_CHECKING:
    from metalog.quorum.node import QuorumNode

KRAFT_VERSION_MIN, KRAFT_VERSION_MAX = 0, 1

_log = get_logger("metalog.quorum.voter")


def stale_entry(node: QuorumNode) -> Voter | None:
    """What this node's entry should be; None if it is that, or if there is no entry to keep."""
    key = node.config.node
    entry = node.voters.get(key.id)
    if node.kraft_version == 0 or entry is None or entry.key != key or not node.endpoints:
        return None
    wanted = Voter(key, node.endpoints, KRAFT_VERSION_MIN, KRAFT_VERSION_MAX)
    return None if wanted == entry else wanted


async def keep_entry(node: QuorumNode) -> None:
    """Run for as long as the node does."""
    while True:
        await asyncio.sleep(node.config.timing.fetch_timeout_ms / 1000.0)
        entry = stale_entry(node)
        leader_id, epoch = node.leader()
        if entry is None or leader_id is None:
            continue
        try:
            if leader_id == node.node_id:
                node.update_voter(entry)
            else:
                request = wire.update_voter_request(entry, node.cluster_id, epoch)
                response = await node.ask_node(leader_id, request)
                if response.error_code:
                    raise ApiError(ErrorCode(response.error_code))
        except (OSError, ApiError, ProtocolError) as error:
            _log.info("this voter's entry could not be updated yet", why=str(error))
        else:
            _log.info("told the quorum where this voter listens", endpoints=str(entry.endpoints))
