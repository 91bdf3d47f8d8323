"""Comparison of replicas byte by byte, with the first difference in the finding (P4)."""

from __future__ import annotations

from pathlib import Path

from kraftbox.chaos.replicas import compare, ends, findings, read
from protocol.batch.records import Record, build_batch


def batch(base: int, *values: bytes, epoch: int = 3) -> bytes:
    return build_batch([Record(0, 5, None, value) for value in values], base, leader_epoch=epoch)


def write(root: Path, node: int, segments: dict[int, bytes]) -> None:
    folder = root / str(node) / "t-0"
    folder.mkdir(parents=True)
    for base, data in segments.items():
        (folder / f"{base:020}.log").write_bytes(data)


def directories(root: Path) -> dict[int, Path]:
    return {node: root / str(node) for node in (1, 2, 3)}


def test_equal_replicas_may_roll_their_segments_at_different_offsets(tmp_path: Path) -> None:
    first, second, third = batch(0, b"a", b"b"), batch(2, b"c"), batch(3, b"d")
    write(tmp_path, 1, {0: first + second + third})
    write(tmp_path, 2, {0: first, 2: second, 3: third})
    assert findings(directories(tmp_path), "t", 1) == []
    assert ends(read(directories(tmp_path), "t", 0)) == {1: 4, 2: 4}


def test_replica_records_beyond_shortest_log_are_no_difference(tmp_path: Path) -> None:
    write(tmp_path, 1, {0: batch(0, b"a") + batch(1, b"b")})
    write(tmp_path, 2, {0: batch(0, b"a")})
    assert compare(read(directories(tmp_path), "t", 0)) is None


def test_other_records_at_the_same_offsets_are_found(tmp_path: Path) -> None:
    write(tmp_path, 1, {0: batch(0, b"a") + batch(1, b"b") + batch(2, b"c")})
    write(tmp_path, 2, {0: batch(0, b"a") + batch(1, b"x") + batch(2, b"c")})
    (finding,) = findings(directories(tmp_path), "t", 1)
    assert finding.rule == "P4 replicas-differ"
    assert finding.examples[0].startswith("t-0: node 1 has offsets 1-1 of epoch 3")


def test_another_leader_epoch_is_a_difference(tmp_path: Path) -> None:
    write(tmp_path, 1, {0: batch(0, b"a")})
    write(tmp_path, 2, {0: batch(0, b"a", epoch=4)})
    assert "epoch 4" in (compare(read(directories(tmp_path), "t", 0)) or "")


def test_an_empty_replica_agrees_with_everything(tmp_path: Path) -> None:
    write(tmp_path, 1, {0: batch(0, b"a")})
    write(tmp_path, 2, {0: b""})
    assert findings(directories(tmp_path), "t", 1) == []


def test_a_replica_without_what_is_committed_is_found(tmp_path: Path) -> None:
    whole = batch(0, b"a") + batch(1, b"b")
    write(tmp_path, 1, {0: whole})
    write(tmp_path, 2, {0: whole})
    write(tmp_path, 3, {0: batch(0, b"a")})
    (finding,) = findings(directories(tmp_path), "t", 1, copies=3, committed={0: 2})
    assert finding.rule == "P4 replicas-incomplete"
    assert finding.examples == ["t-0: node 3 ends at 1; the high watermark is 2"]


def test_a_copy_too_many_or_too_few_is_found(tmp_path: Path) -> None:
    """KAFKA-13972: a cancelled or completed reassignment leaves no replica behind."""
    for node in (1, 2, 3):
        write(tmp_path, node, {0: batch(0, b"a")})
    assert findings(directories(tmp_path), "t", 1, copies=3) == []
    (finding,) = findings(directories(tmp_path), "t", 1, copies=2)
    assert finding.examples == ["t-0: expected 2 replicas; found on nodes 1, 2, 3"]
    (finding,) = findings(directories(tmp_path), "u", 1, copies=2)
    assert finding.examples == ["u-0: expected 2 replicas; found on nodes none"]
    assert findings({}, "t", 1, copies=3) == []
