"""The choice of CI's seeds: cheap ones of every shape."""

from __future__ import annotations

from typing import Any

import pytest

from scripts import choose_seeds
from scripts.choose_seeds import choose
from simulation.ledger import Ledger


def outcome(seed: int, messages: int, brokers: int = 3, **other: Any) -> dict[str, Any]:
    return {
        "seed": seed,
        "broken": None,
        "counts": {"messages": messages, "acked": other.pop("acked", 50)},
        "shape": {"controllers": "1", "brokers": str(brokers)},
        "drawn": {},
        **other,
    }


def test_each_shape_gives_the_same_share() -> None:
    small = [outcome(seed, 100 + seed, brokers=1) for seed in range(8)]
    large = [outcome(100 - seed, 9_000 + seed, brokers=5) for seed in range(4)]
    assert choose([*large, *small], 6) == [0, 1, 2, 3, 99, 100]
    assert choose([*large, *small], 100) == [*range(8), 97, 98, 99, 100]


def test_each_fault_has_a_seed() -> None:
    costly = [outcome(1, 900, drawn={"kill": 2}), outcome(2, 800, drawn={"kill": 1, "cut": 1})]
    assert choose([*costly, *(outcome(seed, 5) for seed in range(10, 20))], 3) == [2, 10, 11]


def test_broken_or_idle_seeds_are_not_chosen() -> None:
    found = choose([outcome(1, 5, broken={"code": "P1"}), outcome(2, 5, acked=3), outcome(3, 9)])
    assert found == [3]


def test_the_seeds_of_the_swarm_alone_are_chosen(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "seeds.jsonl", choose_seeds.code_id())
    for seed in range(20):
        ledger.add(f"--seed {seed}", outcome(seed, 5))
        ledger.add(f"--seed {seed} --tiered", outcome(seed, 1))
    monkeypatch.setattr("sys.argv", ["choose_seeds", str(tmp_path / "seeds.jsonl")])
    choose_seeds.main()
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "# 20 of 20 seeds: scripts/choose_seeds.py.",
        " ".join(map(str, range(15))),
        " ".join(map(str, range(15, 20))),
    ]
