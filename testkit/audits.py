"""The audit at the end of a test: how leaders came to lead, in a run that broke no promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from audit.job import run_here
from audit.reading.inputs import read_inputs
from audit.state.elections import LOSSY


class Elected(NamedTuple):
    """An election as the audit tells of it; `from_leader` is -1 where nobody led."""

    topic: str
    partition: int
    leader_epoch: int
    kind: str
    from_leader: int | None
    to_leader: int

    @property
    def is_lossy(self) -> bool:
        return self.kind in LOSSY


def elections_of(
    *places: Path, history: Sequence[Path] = (), broken: Sequence[str] = ()
) -> list[Elected]:
    """Every election that the metadata logs at or below `places` tell of, in their order.

    Asserts that the audit warns of each election that may have lost records, and of nothing else
    but by the checks of the names `broken`. Brokers' directories below `places` have their replicas
    compared, and with what clients saw (`history`).
    """
    result = run_here(read_inputs(places, history=history))
    found = [Elected(*(e[name] for name in Elected._fields)) for e in result.elections]
    raised = [f for f in result.findings if f["severity"] != "info"]
    warned = [f for f in raised if f["check"] == "lossy-election"]
    others = [f"{f['severity']} {f['check']}: {f['message']}" for f in raised if f not in warned]
    assert {f["check"] for f in raised if f not in warned} == set(broken), others
    listed = Counter((f["topic"], f["partition"], f["after"]["leader_epoch"]) for f in warned)
    assert listed == Counter(e[:3] for e in found if e.is_lossy)
    return found


def kinds_of(elections: list[Elected], topic: str | None = None) -> Counter[str]:
    """How often leaders were elected as what: of one topic, or of all."""
    return Counter(e.kind for e in elections if topic in (None, e.topic))
