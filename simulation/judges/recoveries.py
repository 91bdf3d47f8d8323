"""A judge of unclean recovery: brokers' answers about their logs are true, and elections are
counted.

It sees the responses of brokers to the controller (GetReplicaLogInfo) and reads their logs itself:
the leader epoch of the last batch, the log end. Controllers count elections as they append them, so
all lives together count at least the committed ones of each kind.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from broker.apis import get_replica_log_info
from metalog.image.values import LOSSY_ELECTIONS, ElectedAs
from simulation.judges.committed import batches_of
from simulation.judges.election_laws import Answer
from simulation.judges.judge import Judge
from simulation.world.invariants import require
from storage.log.log import Log

if TYPE_CHECKING:
    from broker.context import BrokerContext
    from protocol.messages.get_replica_log_info import (
        GetReplicaLogInfoRequest,
        GetReplicaLogInfoResponse,
    )
    from simulation.judges.world import JudgedWorld
    from simulation.world.cluster import NodeLife

CLEAN = {
    ElectedAs.ISR: (ElectedAs.ISR, ElectedAs.PREFERRED),
    ElectedAs.ELR: (ElectedAs.ELR,),
    ElectedAs.UNCLEAN: tuple(sorted(LOSSY_ELECTIONS)),
}
"""The kinds that controllers count, by the actual kind of an election."""


class RecoveryJudge(Judge):
    """Judges log answers of brokers, and election counts of controllers."""

    due_s = math.inf

    def __init__(self, world: JudgedWorld) -> None:
        self._laws = world.promises.metadata.elections
        self._counters: dict[NodeLife, dict[ElectedAs, int]] = {}
        self._lies: list[str] = []

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Hook into the log answers of brokers."""
        real = get_replica_log_info.log_infos
        with mock.patch.object(get_replica_log_info, "log_infos", self._listening(real)):
            yield

    def _listening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def log_infos(
            broker: BrokerContext, request: GetReplicaLogInfoRequest, broker_epoch: int
        ) -> GetReplicaLogInfoResponse:
            response: GetReplicaLogInfoResponse = real(broker, request, broker_epoch)
            self._hear(broker, response)
            return response

        return log_infos

    def _hear(self, broker: BrokerContext, response: GetReplicaLogInfoResponse) -> None:
        for topic in response.topic_partition_log_info_list:
            for info in topic.partition_log_info:
                if info.error_code:
                    continue
                reported = Answer(info.last_written_leader_epoch, info.log_end_offset)
                log = broker.replicas.find_by_id(topic.topic_id, info.partition).log
                has = _end_of(log)
                if reported != has and not (has.end == reported.end == log.local_log_start_offset):
                    where = f"{log.topic}-{log.partition} of {broker.node_id}"
                    self._lies.append(
                        f"P21: {where} ends with {has}, the broker reports {reported}"
                    )
                key = (topic.topic_id, info.partition)
                life, epoch = response.broker_epoch, info.current_leader_epoch
                self._laws.answered(key, broker.node_id, life, epoch, reported)

    def after(self, life: NodeLife) -> None:
        """Raise Violation if a broker's answer was false."""
        require(not self._lies, self._lies[0] if self._lies else "")
        if life not in self._counters and life.node is not None:
            server = life.node.controller
            if server is not None:
                self._counters[life] = server.controller.stats.by_kind

    def at_end(self) -> None:
        """Check the answers, and that controllers count elections by their actual kind."""
        require(not self._lies, self._lies[0] if self._lies else "")
        for kind, committed in self._laws.committed.items():
            counts = (by_kind[one] for by_kind in self._counters.values() for one in CLEAN[kind])
            counted = sum(counts)
            require(
                counted >= committed,
                f"P22: {committed} elections were {kind.name}, controllers have counted {counted}",
            )


def _end_of(log: Log) -> Answer:
    """Return the end of a log by its batches; epoch -1 without any batch, even if the log's epochs
    reach back further."""
    last = -1
    for (_, _, epoch, _), _ in batches_of(log, log.local_log_start_offset, log.log_end_offset):
        last = epoch
    return Answer(last, log.log_end_offset)
