from __future__ import annotations

from controller.reassignments import list_reassignments
from protocol.metadata.partition_change_record import PartitionChangeRecord
from tests.unit.controller.harness import Cluster


def test_only_what_is_going_on_and_asked_for() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_topic("a", [1], [1])
    cluster.create_topic("b", [1])
    assert list(list_reassignments(cluster.view(), None)) == []
    for name in ("a", "b"):
        cluster.apply(
            [
                PartitionChangeRecord(
                    partition_id=0,
                    topic_id=cluster.image.topics.by_name[name].id,
                    replicas=[1, 2],
                    directories=[bytes(16), bytes(16)],
                    adding_replicas=[2],
                )
            ]
        )

    def found(named: list[tuple[str, list[int]]] | None) -> list[tuple[str, int]]:
        return [(r.topic, r.partition_id) for r in list_reassignments(cluster.view(), named)]

    assert found(None) == [("a", 0), ("b", 0)]
    assert found([("b", [0, 7]), ("x", [0]), ("a", [1])]) == [("b", 0)]
    assert found([]) == []
