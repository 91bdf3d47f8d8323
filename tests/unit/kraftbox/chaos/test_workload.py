"""The clients of a chaos run against one node in memory, and the ledger's totals."""

from __future__ import annotations

import random
from typing import Any

import pytest

from client.cluster_client import ClusterClient
from client.producer import NotProduced
from kraftbox.chaos.checks import judge, summary
from kraftbox.chaos.faults import KINDS, Hit
from kraftbox.chaos.history import SendOutcome as Fate
from kraftbox.chaos.history import decode, encode
from kraftbox.chaos.ledger import Gaps, Ledger
from kraftbox.chaos.report import progress_line, timeline_rows, verdict_lines
from kraftbox.chaos.run import Entry, Progress, RunResult, history_clock
from kraftbox.chaos.workload import Load, Workload
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from testkit.memory.chaos_history import RECORDS, clean_history
from testkit.memory.node import running_node


async def test_a_run_without_faults_is_clean() -> None:
    history = await clean_history()
    assert decode(encode(history)) == history
    assert judge(history) == []
    counts = summary(history)
    assert counts["ok"] == counts["sends"] >= RECORDS / 2
    assert {one.role for one in history.processes} == {"producer", "consumer", "reader"}
    assert {send.producer_id for send in history.sends} != {-1}
    assert len({send.partition for send in history.sends}) == 3
    assert history.topics[0].topic_id != bytes(16)


async def test_brokers_that_have_not_registered_yet_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask, refusals = ClusterClient.request_any, 2

    async def request_any(self: ClusterClient, request: Any, *more: Any) -> Any:
        nonlocal refusals
        if isinstance(request, CreateTopicsRequest) and refusals:
            refusals -= 1
            too_few = CreateTopicsResponse.CreatableTopicResult(
                name=request.topics[0].name, error_code=ErrorCode.INVALID_REPLICATION_FACTOR
            )
            return CreateTopicsResponse(topics=[too_few])
        return await ask(self, request, *more)

    monkeypatch.setattr(ClusterClient, "request_any", request_any)
    async with running_node() as node:
        host, _, port = node.client_addresses()[0].rpartition(":")
        load = Load(partitions=3, replication_factor=1, min_insync_replicas=1)
        workload = Workload([(host, int(port))], Ledger(history_clock()), load, random.Random(1))
        await workload.prepare()
        await workload.close()
    assert refusals == 0
    assert workload.ledger.history.topics[0].partitions == 3


def test_abandoned_send_counts_as_failed_only_if_certain() -> None:
    ledger = Ledger(history_clock())
    cause = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    for error in (
        NotProduced(cause, certain=True),
        NotProduced(cause, certain=False),
        ConnectionResetError(),
    ):
        ledger.sent([1], (1, 0, 0), 0, 5, error, 7)
    assert [(one.outcome, one.error) for one in ledger.history.sends] == [
        (Fate.FAILED, "NOT_ENOUGH_REPLICAS"),
        (Fate.UNKNOWN, "NOT_ENOUGH_REPLICAS"),
        (Fate.UNKNOWN, "ConnectionResetError"),
    ]


def test_the_records_of_a_batch_have_the_offsets_after_its_first() -> None:
    ledger = Ledger(history_clock())
    ledger.sent([10, 11, 12], (1, 0, 2), 4, 5, 100, 7)
    ledger.sent([13], (1, 0, 2), 7, 6, -1, 7)
    assert [(one.offset, one.order) for one in ledger.history.sends] == [
        (100, 4),
        (101, 5),
        (102, 6),
        (-1, 7),
    ]


def test_gaps_are_counted_per_partition_and_from_the_begin_on() -> None:
    gaps = Gaps()
    for at_us in (0, 1_000):
        gaps.acknowledged(0, at_us)
        gaps.acknowledged(1, at_us)
    gaps.begin(5_000)
    gaps.acknowledged(0, 6_000)
    assert gaps.until(7_000) == 2_000
    gaps.acknowledged(1, 9_000)
    assert gaps.longest_us == 4_000
    assert gaps.until(9_500) == 4_000


def test_the_report_names_faults_gaps_and_evidence() -> None:
    entry = Entry("kill-leader", Hit([2], "leader of partition 0"), 3.0, 9.0, 9.5, 2.75)
    (row,) = timeline_rows([entry, entry])[:1]
    assert row == [
        "3.0 s", "kill-leader", "2", "6.0 s", "0.5 s", "2.75 s", "leader of partition 0",
    ]  # fmt: skip
    outcome = RunResult(Ledger(history_clock()).history, [], [entry], ["a word"])
    assert list(verdict_lines(outcome))[-2:] == ["problem: a word", "every promise held"]
    assert "4 failed" in progress_line(Progress(1.0, 9, 4, 0, 7, "resting"))


def test_every_kind_of_fault_has_text_and_needs() -> None:
    assert {"F1", "F2", "F3", "F4", "F5", "F7", "F8", "F9", "F10", "F11", "F12", "F13"} <= {
        kind.number for kind in KINDS.values()
    }
    assert {"F15", "F16", "F28", "F35", "F36"} <= {kind.number for kind in KINDS.values()}
    assert all(kind.text and kind.needs for kind in KINDS.values())
