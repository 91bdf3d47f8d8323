"""The rules of docs/audit.md for kinds and causes of elections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.report.html import KIND_STYLES, as_html
from audit.state.elections import LOSSY
from metalog.image.values import LOSSY_ELECTIONS, ElectedAs
from protocol.metadata import ClearElrRecord, ConfigRecord, UnregisterBrokerRecord
from testkit.records.metadata_logs import LogBuilder, audited, broken


def cluster(**partition: Any) -> LogBuilder:
    builder = LogBuilder().begin()
    builder.topic(**partition)
    return builder


def elected(builder: LogBuilder, tmp_path: Path) -> list[tuple[str, str, int, int]]:
    result = audited(builder.write(tmp_path))
    return [(e["kind"], e["cause"], e["from_leader"], e["to_leader"]) for e in result["elections"]]


def test_a_fenced_leader_is_followed_out_of_the_isr(tmp_path: Path) -> None:
    builder = cluster()
    builder.fence(1, builder.change(isr=[2, 3], leader=2))
    assert elected(builder, tmp_path) == [("isr", "broker-fenced", 1, 2)]


def test_preferred_only_when_the_old_leader_stays(tmp_path: Path) -> None:
    builder = cluster(leader=2)
    builder.add(builder.change(leader=1))
    builder.add(builder.change(leader=2))
    builder.add(builder.change(isr=[1, 3], leader=1))
    assert [one[0] for one in elected(builder, tmp_path)] == ["preferred", "isr", "isr"]


def leaderless(builder: LogBuilder, **left: Any) -> None:
    builder.fence(2, builder.change(isr=[1, 3]))
    builder.fence(3, builder.change(isr=[1], eligible_leader_replicas=[3]))
    builder.fence(1, builder.change(isr=[], leader=-1, **left))


def test_an_eligible_replica_returns(tmp_path: Path) -> None:
    builder = cluster()
    leaderless(builder, eligible_leader_replicas=[3, 1], last_known_elr=[1])
    change = builder.change(isr=[3], leader=3, eligible_leader_replicas=[1], last_known_elr=[])
    builder.unfence(3, change)
    result = audited(builder.write(tmp_path))
    assert [e["kind"] for e in result["elections"]] == ["elr"]
    assert result["elections"][0]["cause"] == "broker-unfenced"
    assert broken(result) == []


def test_the_last_known_leader_returns(tmp_path: Path) -> None:
    builder = cluster()
    leaderless(builder, eligible_leader_replicas=[], last_known_elr=[1])
    change = builder.change(isr=[1], leader=1, last_known_elr=[], leader_recovery_state=1)
    builder.unfence(1, change)
    result = audited(builder.write(tmp_path))
    assert [e["kind"] for e in result["elections"]] == ["last-known-leader"]
    assert broken(result) == ["lossy-election"]
    assert result["summary"]["promises_hold"]


def test_the_last_known_leader_of_a_partition_that_recovers_already(tmp_path: Path) -> None:
    """Kafka's record does not repeat RECOVERING."""
    builder = cluster()
    leaderless(builder, eligible_leader_replicas=[], last_known_elr=[1], leader_recovery_state=1)
    builder.unfence(1, builder.change(isr=[1], leader=1, last_known_elr=[]))
    assert elected(builder, tmp_path) == [("last-known-leader", "broker-unfenced", -1, 1)]


@pytest.mark.parametrize(("enabled", "cause"), [(False, "unknown"), (True, "unclean-config")])
def test_an_unclean_election(tmp_path: Path, enabled: bool, cause: str) -> None:
    builder = cluster()
    leaderless(builder, eligible_leader_replicas=[3], last_known_elr=[1])
    builder.unfence(2)
    if enabled:
        name = "unclean.leader.election.enable"
        builder.add(ConfigRecord(resource_type=2, resource_name="t", name=name, value="true"))
    builder.add(
        builder.change(
            isr=[2],
            leader=2,
            eligible_leader_replicas=[],
            last_known_elr=[],
            leader_recovery_state=1,
        )
    )
    assert elected(builder, tmp_path) == [("unclean", cause, -1, 2)]


def test_an_election_from_nowhere_is_unclean_in_old_logs(tmp_path: Path) -> None:
    builder = cluster(isr=[1])
    builder.add(builder.change(isr=[2], leader=2))
    assert [one[0] for one in elected(builder, tmp_path)] == ["unclean"]


def test_controlled_shutdown_and_unregistering(tmp_path: Path) -> None:
    builder = cluster()
    stopping = builder.fenced_record(1, 0)
    stopping.in_controlled_shutdown = 1
    builder.add(stopping, builder.change(isr=[2, 3], leader=2))
    gone = UnregisterBrokerRecord(broker_id=2, broker_epoch=builder.epoch_of(2))
    builder.add(builder.change(isr=[3], leader=3, eligible_leader_replicas=[]), gone)
    causes = [one[1] for one in elected(builder, tmp_path)]
    assert causes == ["controlled-shutdown", "broker-unregistered"]


def test_a_replica_that_is_moved_away(tmp_path: Path) -> None:
    builder = cluster()
    builder.add(
        builder.change(replicas=[2, 3], isr=[2, 3], leader=2, directories=[bytes([9]) * 16] * 2)
    )
    assert elected(builder, tmp_path) == [("isr", "reassignment", 1, 2)]


def test_election_kind_noted_by_the_controller_replaces_the_inferred_one(tmp_path: Path) -> None:
    builder = cluster()
    noted = builder.change(
        isr=[2, 3], leader=2, election_kind=ElectedAs.ELR.value, election_cause="operator-request"
    )
    builder.fence(1, noted)
    assert elected(builder, tmp_path) == [("elr", "operator-request", 1, 2)]


def test_every_kind_that_a_controller_notes_is_known(tmp_path: Path) -> None:
    builder = cluster()
    kinds = [kind for kind in ElectedAs if kind is not ElectedAs.NONE]
    for number, kind in enumerate(kinds):
        builder.add(
            builder.change(
                leader=2 - number % 2,
                leader_recovery_state=int(kind in LOSSY_ELECTIONS),
                election_kind=kind.value,
                election_cause="operator-request",
            )
        )
    told = [one[0] for one in elected(builder, tmp_path)]
    assert told == [kind.name.lower().replace("_", "-") for kind in kinds]
    assert {kind.name for kind in LOSSY_ELECTIONS} == {kind.name for kind in LOSSY}
    assert set(KIND_STYLES) == set(told)
    assert len(set(KIND_STYLES.values())) == len(told)


def test_lossy_elections_are_listed_by_kind_without_other_findings(
    tmp_path: Path,
) -> None:
    """A partition loses records twice: once by comparison of logs, once by an operator's decision.

    In between an eligible replica returns, and finally the former leader.
    """
    builder = cluster()

    def lost(isr: list[int], **noted: Any) -> None:
        builder.add(
            builder.change(
                isr=isr,
                leader=isr[0],
                eligible_leader_replicas=[],
                last_known_elr=[],
                leader_recovery_state=1,
                **noted,
            )
        )
        builder.add(builder.change(isr=isr, leader_recovery_state=0))

    leaderless(builder, eligible_leader_replicas=[], last_known_elr=[3, 1])
    builder.unfence(3)
    lost([3], election_kind=6, election_cause="unclean-recovery")
    builder.fence(3, builder.change(isr=[], leader=-1, eligible_leader_replicas=[3]))
    back = builder.change(isr=[3], leader=3, eligible_leader_replicas=[], election_kind=3)
    builder.unfence(3, back.replace(election_cause="broker-unfenced"))
    gone = {"eligible_leader_replicas": [], "last_known_elr": [3]}
    builder.fence(3, builder.change(isr=[], leader=-1, **gone))
    builder.unfence(2)
    lost([2], election_kind=7, election_cause="operator-request")
    gone["last_known_elr"] = [2]
    builder.fence(2, builder.change(isr=[], leader=-1, **gone))
    builder.unfence(2)
    lost([2], election_kind=4, election_cause="broker-unfenced")
    result = audited(builder.write(tmp_path))
    told = [(e["kind"], e["cause"], e["to_leader"]) for e in result["elections"]]
    assert told == [
        ("unclean-recovery", "unclean-recovery", 3),
        ("elr", "broker-unfenced", 3),
        ("designated", "operator-request", 2),
        ("last-known-leader", "broker-unfenced", 2),
    ]
    assert result["summary"]["elections"] == {
        "designated": 1,
        "elr": 1,
        "last-known-leader": 1,
        "unclean-recovery": 1,
    }
    assert broken(result) == ["lossy-election"]
    said = [f["message"] for f in result["findings"] if f["check"] == "lossy-election"]
    for message, words in zip(
        said,
        ("longest of those that were asked", "an operator named it", "had not flushed"),
        strict=True,
    ):
        assert words in message
    page = as_html(result)
    for kind in ("unclean-recovery", "designated", "last-known-leader"):
        assert f'<td class="error">{kind}</td>' in page
    assert '<td class="kind">elr</td>' in page


def test_record_with_an_unchanged_leader_is_not_an_election(tmp_path: Path) -> None:
    builder = cluster()
    builder.add(builder.change(leader=1, isr=[1, 2]))
    result = audited(builder.write(tmp_path))
    assert result["elections"] == []


def test_clearing_the_elr_is_understood(tmp_path: Path) -> None:
    builder = cluster()
    builder.fence(2, builder.change(isr=[1, 3]))
    builder.fence(3, builder.change(isr=[1], eligible_leader_replicas=[3]))
    setting = ConfigRecord(
        resource_type=2, resource_name="t", name="min.insync.replicas", value="1"
    )
    builder.add(setting, ClearElrRecord(topic_name="t"))
    builder.snapshot()
    builder.add(builder.change(isr=[1]))
    result = audited(builder.write(tmp_path))
    assert broken(result) == []
    assert result["summary"]["partitions_under_min_isr"] == 0


def test_times_add_up_over_a_snapshot(tmp_path: Path) -> None:
    """This is one episode of three seconds, whether or not a snapshot interrupts it."""
    seen = []
    for name, cut in (("whole", False), ("cut", True)):
        builder = cluster()
        builder.fence(2, builder.change(isr=[1, 3]))
        builder.fence(3, builder.change(isr=[1], eligible_leader_replicas=[3]))
        builder.unfence(2)
        if cut:
            builder.snapshot()
        builder.unfence(3)
        builder.add(builder.change(isr=[1, 2], eligible_leader_replicas=[]))
        result = audited(builder.write(tmp_path / name))
        assert broken(result) == []
        (fact,) = [f for f in result["findings"] if f["check"] == "under-min-isr"]
        seen.append(fact["message"])
    assert seen == ["t-0 was under min ISR for 3.000 s in 1 episodes"] * 2
