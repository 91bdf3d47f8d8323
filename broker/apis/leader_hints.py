"""The new leader in responses that refuse a client (KIP-951).

Produce from version 10 and Fetch from version 16 contain CurrentLeader with NOT_LEADER_OR_FOLLOWER
and FENCED_LEADER_EPOCH, and the leader's address once per response. A hint never names a fenced
broker or an address on a listener other than the client's. In a Fetch its epoch is never older than
the client's; a Produce has no leader epoch to compare with.

Hints come from the metadata image. It is as new as this broker's replicas or newer: they are
notified of an image after it is in place (P24). `kraftbox.leader.discovery.enable=false` disables
hints, to measure their benefit. It applies from the next refusal on, so that both can be measured
on one running cluster.
"""

from __future__ import annotations

from typing import Final

from broker.metadata.cache import LeaderHint, MetadataCache
from broker.metadata.topic_settings import TopicSettingsTable
from metalog.image.values import TopicImage
from protocol.errors import ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.fetch import FetchResponse
from protocol.messages.produce import ProduceResponse
from protocol.transport.dispatch import RequestContext
from runtime.config import keys_kraftbox

_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class LeaderHints:
    """Adds leaders to responses."""

    def __init__(self, metadata: MetadataCache, settings: TopicSettingsTable) -> None:
        self._metadata = metadata
        self._settings = settings

    @property
    def enabled(self) -> bool:
        return self._settings.effective_node[keys_kraftbox.KRAFTBOX_LEADER_DISCOVERY_ENABLE]

    def add_to_produce(self, context: RequestContext, response: ProduceResponse) -> None:
        """Fill in `current_leader` of refused partitions, and `node_endpoints`."""
        for topic in response.responses:
            for result in topic.partition_responses:
                if result.error_code not in _MOVED:
                    continue
                hint = self.find(context.listener, topic.name, topic.topic_id, result.index)
                if hint is not None:
                    result.current_leader = ProduceResponse.LeaderIdAndEpoch(
                        leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
                    )
                    if all(e.node_id != hint.leader_id for e in response.node_endpoints):
                        response.node_endpoints.append(
                            ProduceResponse.NodeEndpoint(
                                node_id=hint.leader_id,
                                host=hint.host,
                                port=hint.port,
                                rack=hint.rack,
                            )
                        )

    def add_to_fetch(
        self,
        context: RequestContext,
        response: FetchResponse,
        client_epochs: dict[tuple[str | bytes, int], int],
    ) -> None:
        """Do the same for Fetch; `client_epochs` are the leader epochs that the client named."""
        for topic in response.responses:
            for data in topic.partitions:
                if data.error_code not in _MOVED:
                    continue
                key = (topic.topic_id, data.partition_index)
                hint = self.find(
                    context.listener, topic.topic, *key, epoch_at_least=client_epochs.get(key, -1)
                )
                if hint is not None:
                    data.current_leader = FetchResponse.LeaderIdAndEpoch(
                        leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
                    )
                    if all(e.node_id != hint.leader_id for e in response.node_endpoints):
                        response.node_endpoints.append(
                            FetchResponse.NodeEndpoint(
                                node_id=hint.leader_id,
                                host=hint.host,
                                port=hint.port,
                                rack=hint.rack,
                            )
                        )

    def find(
        self,
        listener: str,
        name: str,
        topic_id: bytes,
        index: int,
        *,
        epoch_at_least: int = -1,
    ) -> LeaderHint | None:
        """Return the partition's leader, None if it is unknown or of no use to the client."""
        if not self.enabled:
            return None
        topic: TopicImage | None = (
            self._metadata.topic(name)
            if topic_id == ZERO_UUID
            else self._metadata.topic_by_id(topic_id)
        )
        if topic is None:
            return None
        return self._metadata.leader_hint(
            topic.partitions.get(index), listener, epoch_at_least=epoch_at_least
        )
