"""CPU time of decisions about very many partitions, with and without known local logs (KIP-1303).

There are ten topics of 1,000 partitions with three replicas, all led by one broker. The figures are
CPU time in one process, the smallest of several rounds. They are for the decision that the leader
is fenced (ten thousand elections), and for the search for preferred leaders: the total and the
longest turn. In the second column each partition has a table, in which one of three replicas has
too little.

Then the controller handles 250 ISR changes that a leader proposes in one request; in the second
column each has the local logs of its members. It decides them, replays their records and encodes
them.

    python -m bench.election_decisions [--rounds 9]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Sequence

from controller.configs.topic_settings import LOCAL_LOG_MS
from controller.elections.cause import Cause
from controller.elections.context import BrokerChange
from controller.elections.triggers import BEGIN, ChangePosition, part_of_changes
from controller.elections.upkeep import decide_rebalance
from controller.topics.isr import decide_alter_partition
from metalog.image.local_log import LocalLogTable
from metalog.image.replay import replay_all
from metalog.image.snapshot import local_log_entries
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.metadata import ConfigRecord, PartitionChangeRecord, encode_record
from testkit.memory.controller import Cluster

TOPICS, PARTITIONS = 10, 1_000
REPLICAS = (1, 2, 3)
SHORT = 2
SPAN_MS = 600_000
CLUSTER_WIDE = 4
CHANGES = 250


def cluster(*, known: bool) -> Cluster:
    """Return a cluster with a threshold and a table per partition, or without KIP-1303."""
    made = Cluster(elr=True, min_insync_replicas="2")
    made.start(*REPLICAS)
    for topic in range(TOPICS):
        made.create_topic(f"t{topic}", *[list(REPLICAS)] * PARTITIONS)
    if known:
        value = str(SPAN_MS)
        made.apply(
            [
                ConfigRecord(
                    resource_type=CLUSTER_WIDE, resource_name="", name=LOCAL_LOG_MS, value=value
                ),
                *_tables(made),
            ]
        )
    else:
        made.apply([*_changes(made)])
    return made


def _changes(made: Cluster) -> Iterator[PartitionChangeRecord]:
    """Yield one change per partition, as after a report of its table.

    A partition that never changed would lie elsewhere in memory, next to its neighbours.
    """
    for topic in made.image.topics.by_id.values():
        for index in topic.partitions:
            yield PartitionChangeRecord(topic_id=topic.id, partition_id=index, isr=list(REPLICAS))


def _tables(made: Cluster) -> Iterator[PartitionChangeRecord]:
    brokers, now_ms = made.image.cluster.brokers, made.now_ms
    for topic in made.image.topics.by_id.values():
        for index in topic.partitions:
            table = LocalLogTable.of(
                (
                    (broker_id, brokers[broker_id].epoch),
                    now_ms - (SPAN_MS // 2 if broker_id == SHORT else 2 * SPAN_MS) - index,
                    1 + index,
                    now_ms,
                )
                for broker_id in REPLICAS
            )
            entries = local_log_entries(PartitionChangeRecord, table)
            yield PartitionChangeRecord(topic_id=topic.id, partition_id=index, local_logs=entries)


def fence(made: Cluster) -> list[float]:
    """Return the ms of each step; check by the new leaders that all elections were decided."""
    change, view = BrokerChange(leaving=frozenset({1})), made.view()
    since: ChangePosition | None = BEGIN
    turns, decided = [], 0
    while since is not None:
        began = time.process_time()
        part = part_of_changes(view, change, Cause.BROKER_FENCED, since)
        turns.append(1e3 * (time.process_time() - began))
        decided += len(part.records)
        since = part.since
        if since is not None and decided >= TOPICS * PARTITIONS:
            break
    assert decided == TOPICS * PARTITIONS
    return turns


def look(made: Cluster) -> list[float]:
    """Return the ms of each turn of the search for preferred leaders, all of which lead."""
    view = made.view()
    since: ChangePosition | None = BEGIN
    turns = []
    while since is not None:
        began = time.process_time()
        decision = decide_rebalance(view, since)
        turns.append(1e3 * (time.process_time() - began))
        assert not decision.records
        since = decision.reply
    return turns


def isr_changes(made: Cluster, *, known: bool) -> AlterPartitionRequest:
    """Return a request in which broker 1 proposes to remove 2 from ISRs of the first topic.

    The local logs of its members differ from those in the metadata.
    """
    brokers, now_ms = made.image.cluster.brokers, made.now_ms
    topic = made.image.topics.by_name["t0"]
    partitions = []
    for index in range(CHANGES):
        members = [
            AlterPartitionRequest.BrokerState(
                broker_id=broker_id,
                broker_epoch=brokers[broker_id].epoch,
                local_log_start_timestamp=now_ms - 3 * SPAN_MS - index if known else -1,
                local_log_size_bytes=1_000_000 + index if known else -1,
            )
            for broker_id in REPLICAS
            if broker_id != SHORT
        ]
        partition = topic.partitions[index]
        partitions.append(
            AlterPartitionRequest.PartitionData(
                partition_index=index,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                new_isr_with_epochs=members,
            )
        )
    return AlterPartitionRequest(
        broker_id=1,
        broker_epoch=brokers[1].epoch,
        topics=[AlterPartitionRequest.TopicData(topic_id=topic.id, partitions=partitions)],
    )


def change_isrs(made: Cluster, request: AlterPartitionRequest) -> list[float]:
    """Return the ms of deciding, replaying and encoding the proposed ISR changes."""
    view = made.view()
    began = time.process_time()
    decision = decide_alter_partition(view, request)
    decided = time.process_time()
    replay_all(made.image, decision.records)
    replayed = time.process_time()
    for record in decision.records:
        encode_record(record, 2)
    written = time.process_time()
    assert len(decision.records) == CHANGES
    return [1e3 * (decided - began), 1e3 * (replayed - decided), 1e3 * (written - replayed)]


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds; the smallest figure counts")
    rounds = parser.parse_args(given).rounds
    clusters = {name: cluster(known=known) for name, known in (("off", False), ("on", True))}
    gc.collect()
    gc.freeze()
    work: dict[str, Callable[[Cluster], list[float]]] = {
        "deciding that a broker is fenced": fence,
        "looking for preferred leaders": look,
    }
    print("| 10,000 partitions, ms of CPU | off | on | ratio |\n|---|---|---|---|")
    for what, measure in work.items():
        runs = {name: [] for name in clusters}  # type: dict[str, list[list[float]]]
        for _ in range(rounds):  # alternating, so that a busy machine affects both alike
            for name, made in clusters.items():
                runs[name].append(measure(made))
        for row, value in (("", sum), (", the longest turn", max)):
            _say(what + row, *(min(map(value, runs[name])) for name in ("off", "on")))
    requests = {name: isr_changes(made, known=name == "on") for name, made in clusters.items()}
    crowds = {name: [] for name in clusters}  # type: dict[str, list[list[float]]]
    for _ in range(rounds):
        for name, made in clusters.items():
            crowds[name].append(change_isrs(made, requests[name]))
    for step, what in enumerate(("deciding", "replaying", "writing")):
        what = f"{what} {CHANGES} changes of ISRs"
        _say(what, *(min(run[step] for run in crowds[name]) for name in ("off", "on")))


def _say(what: str, off: float, on: float) -> None:
    print(f"| {what} | {off:.1f} | {on:.1f} | {on / off:.2f} |")


if __name__ == "__main__":
    main()
