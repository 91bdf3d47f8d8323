"""Reports of local logs on their way to a controller (KIP-1303)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller_link.channel import ControllerUnavailable
from broker.replication.requests.alter_partition_sender import IsrChanges
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from testkit.memory.broker import settle
from testkit.memory.replicas import LAG_MS, Cluster, expire


class Controller:
    """A channel to a controller with versions up to `last`; the test releases the answers."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.moves = 0
        self.asked: list[tuple[int, AlterPartitionRequest]] = []

    async def request(
        self,
        message: AlterPartitionRequest,
        timeout_ms: float,
        *,
        version: int | None = None,
        if_offered: int | None = None,
    ) -> AlterPartitionResponse:
        if version is not None and version > self.last:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, None)
        if if_offered is not None and if_offered <= self.last:
            version = if_offered
        self.asked.append((3 if version is None else version, message))
        raise ControllerUnavailable("says nothing")

    async def pause(self, pause_ms: float) -> None:
        raise AssertionError("nothing is asked again in this test")


async def changes(threshold: str, last: int) -> tuple[Cluster, Controller]:
    """Return a leader with a follower that is known, and then too slow."""
    c = Cluster(2, leader_election_eligible_local_log_bytes=threshold)
    controller: Any = Controller(last)
    made = IsrChanges(
        node_id=1,
        broker_epoch=lambda: 101,
        carry_out=c[1].replicas.carry_out,
        channel=controller,
        clock=c.clock,
        supervisor=c[1].supervisor,
    )
    c[1].connect(report=made.report)
    c.create(1, 2)
    c[1].append(b"a")
    c.fetch(2, times=2)
    await settle()
    made._report_sender.close()
    c[1].append(b"b")
    c.clock.advance(round(LAG_MS) + 1)
    made._sender._queue.failed = lambda now_ms: made._sender.close()  # type: ignore[method-assign]
    c[1].connect(propose=made.propose)
    assert expire(c) == {1}
    await settle()
    return c, controller


@pytest.mark.parametrize(
    ("threshold", "last", "versions"),
    [
        # The report, and then the change, with the same stats.
        ("1", 4, [4, 4]),
        # A controller without version 4, such as Kafka's, gets changes alone.
        ("1", 3, [3]),
        ("-1", 4, [3]),
        ("0", 4, [3]),
    ],
)
async def test_alter_partition_version_4_needs_thresholds_and_controller_support(
    threshold: str, last: int, versions: list[int]
) -> None:
    _, controller = await changes(threshold, last)
    assert [version for version, _ in controller.asked] == versions
    (changed,) = controller.asked[-1][1].topics[0].partitions
    assert [m.broker_id for m in changed.new_isr_with_epochs] == [1]
