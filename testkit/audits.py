"""The audit at the end of a test: the elections of a run that broke no promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from audit.job import run_here
from audit.reading.inputs import read_inputs
from audit.state.elections import LOSSY


class Elected(NamedTuple):
    """An election as the audit reports it; `from_leader` is -1 if there was no leader."""

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
    """Return every election in the metadata logs at or below `places`, in order.

    Asserts that the audit warns of each election that may have lost records, and perhaps of records
    that it has lost for certain, and reports nothing else except by the checks named in `broken`.
    The replicas in brokers' directories below `places` are compared with each other, and with what
    clients read and sent (`history`).
    """
    result = run_here(read_inputs(places, history=history))
    found = [Elected(*(e[name] for name in Elected._fields)) for e in result.elections]
    raised = [f for f in result.findings if f["severity"] != "info"]
    warned = [f for f in raised if f["check"] == "lossy-election"]
    rest = [f for f in raised if f["check"] not in ("lossy-election", "records-lost")]
    others = [f"{f['severity']} {f['check']}: {f['message']}" for f in rest]
    assert {f["check"] for f in rest} == set(broken), others
    listed = Counter((f["topic"], f["partition"], f["after"]["leader_epoch"]) for f in warned)
    assert listed == Counter(e[:3] for e in found if e.is_lossy)
    return found


def kinds_of(elections: list[Elected], topic: str | None = None) -> Counter[str]:
    """Return how often leaders were elected by each kind, in one topic or in all."""
    return Counter(e.kind for e in elections if topic in (None, e.topic))
