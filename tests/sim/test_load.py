"""The shared code of simulated clients: discovery of leaders, and the last reader."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from client.leaders import Leader
from protocol.batch.records import Producer
from protocol.errors import ApiError, ErrorCode
from protocol.messages.produce import ProduceResponse
from runtime.clock import ManualClock
from simulation.clients.load import Access, Load
from simulation.judges.ledger import Batch, Known, PartitionLedger
from simulation.swarm import RunOutcome, run
from simulation.world.invariants import Violation
from tests.sim.small_cluster import schedule

pytestmark = pytest.mark.sim

OLD, NEW = b"o" * 16, b"n" * 16
LEADER = Leader(2, 0)


class KnowsAnEarlierTopic:
    """A client that knew a topic before it was created again; `told` is the topic id it gets
    now."""

    def __init__(self, told: bytes) -> None:
        self._told = told
        self.asked = 0
        self.cluster: Any = SimpleNamespace(cache=SimpleNamespace(topic_ids={"t": OLD}))

    async def topics(self) -> None:
        self.asked += 1
        self.cluster.cache.topic_ids["t"] = self._told

    async def find_leader(self, _topic: str, _partition: int) -> Leader:
        return LEADER


async def test_client_with_an_earlier_topic_id_refreshes_its_metadata_first() -> None:
    client: Any = KnowsAnEarlierTopic(NEW)
    access, one = Access(client), PartitionLedger("t", 0, NEW)
    assert await access.leader(one) == LEADER
    assert await access.leader(one) == LEADER
    assert client.asked == 1


async def test_partition_of_a_topic_that_the_cluster_does_not_list_has_no_leader() -> None:
    client: Any = KnowsAnEarlierTopic(OLD)
    with pytest.raises(ApiError, match="another topic now"):
        await Access(client).leader(PartitionLedger("t", 0, NEW))


def refused_once(code: ErrorCode) -> RunOutcome:
    """Refuse the last reader's first fetch with this error."""
    fetch, refused = Load.fetch, list[PartitionLedger]()

    async def refuse(
        self: Load, one: PartitionLedger, at: int, who: str, what: str = "read"
    ) -> Any:
        if what == "final" and not refused:
            refused.append(one)
            raise ApiError(code)
        return await fetch(self, one, at, who, what)

    with mock.patch.object(Load, "fetch", refuse):
        outcome = run(schedule(quiet_from_ms=300))
    assert refused
    return outcome


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE])
def test_last_reader_retries_where_a_leader_has_just_moved(code: ErrorCode) -> None:
    """Preferred leaders are elected again when all is quiet, too (seed 2068)."""
    outcome = refused_once(code)
    assert outcome.broken is None, outcome.broken
    assert {one.partition for one in outcome.history if one.what == "final"} == {"t0-0", "t1-0"}


def test_the_last_reader_is_refused_for_nothing_else() -> None:
    assert refused_once(ErrorCode.NOT_ENOUGH_REPLICAS).broken is not None


@pytest.mark.parametrize("deleted", [False, True])
async def test_h3_acknowledged_batch_is_committed_unless_its_topic_is_deleted(
    deleted: bool,
) -> None:
    """H3: a leader may acknowledge and delete in one event-loop iteration (seed 1565)."""
    promises: Any = SimpleNamespace(
        given_up=frozenset(),
        exists=lambda _topic_id: not deleted,
        partitions={(NEW, 0): SimpleNamespace(end=17)},
        leader_epoch_at=lambda *_: 0,
    )
    trace: Any = SimpleNamespace(add=lambda _line: None)
    load = Load(mock.Mock(), promises, trace, seed=1, clock=ManualClock())
    got = ProduceResponse.PartitionProduceResponse(index=0, error_code=0, base_offset=59)
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[got])

    async def ask(_request: object) -> ProduceResponse:
        return ProduceResponse(responses=[topic])

    one, batch = PartitionLedger("t", 0, NEW), Batch("p", 0, (b"x",))
    with nullcontext() if deleted else pytest.raises(Violation, match="^H3: .* committed is 17"):
        await load.send(one, batch, -1, Producer(), 1, ask)
    assert batch.known is Known.ACKED
