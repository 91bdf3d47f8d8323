"""The fault `replace-broker`: its requests to a cluster, and its effect on a disk (F22)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client.admin import Admin
from kraftbox.chaos.scene import Scene
from kraftbox.chaos.target import LocalTarget, TargetError, TargetNode
from protocol.errors import ApiError, ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from testkit.memory.chaos_target import Target

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition


class Brokers:
    """Brokers that each report an ISR of their own for the only partition."""

    def __init__(self, isr: dict[int, list[int]]) -> None:
        self._isr = isr
        self.asked: list[tuple[int, MetadataRequest]] = []

    async def request_broker(self, node_id: int, request: MetadataRequest, _: float) -> Any:
        self.asked.append((node_id, request))
        if node_id not in self._isr:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "late")
        partition = Partition(
            partition_index=4, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=self._isr[node_id]
        )
        return MetadataResponse(topics=[Topic(name="t", partitions=[partition])])


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two(admin: Admin, key: str, topics: set[str]) -> dict[str, str]:
        assert (key, topics) == ("min.insync.replicas", {"t"})
        return {"t": "2"}

    monkeypatch.setattr(Admin, "topic_values", two)


def scene(isr: dict[int, list[int]]) -> tuple[Scene, Brokers]:
    made, brokers = Scene(Target(), "other"), Brokers(isr)  # type: ignore[arg-type]
    made._client = brokers  # type: ignore[assignment]
    return made, brokers


@pytest.mark.usefixtures("values")
async def test_holdings_use_isr_of_every_topic_from_each_running_broker() -> None:
    """A broker that is behind may still list a replica that has left the ISR."""
    asking, brokers = scene({1: [1, 2, 3], 2: [1, 2], 3: [1, 2, 3]})
    told = await asking.holdings()
    assert [request.topics for _, request in brokers.asked] == [None] * 3
    assert [sorted(one.isr) for one in told] == [[1, 2, 3], [1, 2], [1, 2, 3]]
    assert {(one.name, one.min_isr) for one in told} == {("t-4", 2)}
    assert [one.can_spare([1]) for one in told] == [True, False, True]


@pytest.mark.usefixtures("values")
async def test_holdings_without_answer_of_a_broker_are_refused() -> None:
    asking, _ = scene({1: [1, 2, 3], 2: [1, 2, 3]})
    with pytest.raises(TargetError, match="no broker returned the ISR"):
        await asking.holdings()


@pytest.mark.parametrize(
    ("node_id", "running", "said"),
    [(1, False, "is a controller"), (2, True, "is running"), (2, False, "")],
)
async def test_a_disk_is_emptied_once_its_broker_is_down(
    tmp_path: Path, node_id: int, running: bool, said: str
) -> None:
    data = tmp_path / "data"
    (data / "t-0").mkdir(parents=True)
    target = LocalTarget.__new__(LocalTarget)
    target._disks = {2: data}

    async def members() -> list[TargetNode]:
        return [TargetNode(2, True, False, running, None)]

    target.members = members  # type: ignore[method-assign]
    if said:
        with pytest.raises(TargetError, match=said):
            await target.empty_disk(node_id)
    else:
        await target.empty_disk(node_id)
    assert data.exists() is bool(said)
