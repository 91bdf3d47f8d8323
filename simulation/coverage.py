"""Coverage of many runs: their shapes, faults and rare branches of the product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runtime.marks import MARKS

Document = Mapping[str, Any]
"""One outcome as plain values (`simulation.command.as_document`)."""


def coverage_lines(documents: Sequence[Document]) -> list[str]:
    """Return the tables, for a terminal."""
    return [*_shapes(documents), "", *_faults(documents), "", *_marks(documents)]


def unhit(documents: Sequence[Document]) -> list[str]:
    """Return the marks that no run hit."""
    hit = {name for one in documents for name in one["marks"]}
    return [name for name in MARKS if name not in hit]


def _shapes(documents: Sequence[Document]) -> Iterator[str]:
    for what in ("controllers", "brokers", "layout"):
        found = Counter(one["shape"][what] for one in documents)
        parts = ", ".join(f"{value}: {count}" for value, count in sorted(found.items()))
        yield f"{what:<12} {parts}"


def _faults(documents: Sequence[Document]) -> Iterator[str]:
    """Yield, for each fault, the number of runs that drew it and in which it took effect, and both
    totals."""
    drew: Counter[str] = Counter()
    took: Counter[str] = Counter()
    drawn: Counter[str] = Counter()
    effects: Counter[str] = Counter()
    for one in documents:
        drew.update(one["drawn"].keys())
        took.update(one["took_effect"].keys())
        drawn.update(one["drawn"])
        effects.update(one["took_effect"])
    width = max((len(kind) for kind in drew), default=5)
    yield f"{'fault':<{width}}   drew   took  share  events  effect"
    for kind in sorted(drew):
        share = took[kind] / drew[kind]
        yield (
            f"{kind:<{width}}  {drew[kind]:>5}  {took[kind]:>5}  {share:>5.0%}  "
            f"{drawn[kind]:>6}  {effects[kind]:>6}"
        )


def _marks(documents: Sequence[Document]) -> Iterator[str]:
    """Yield, for each mark, the number of runs that hit it, the total, and the first seed."""
    width = max(len(name) for name in MARKS)
    yield f"{'mark':<{width}}   runs     hits  first seed"
    for name, text in MARKS.items():
        hit = [one for one in documents if name in one["marks"]]
        hits = sum(one["marks"][name] for one in hit)
        first = str(hit[0]["seed"]) if hit else "-"
        yield f"{name:<{width}}  {len(hit):>5}  {hits:>7}  {first:>10}  {text}"
    missing = unhit(documents)
    yield f"{len(MARKS) - len(missing)} of {len(MARKS)} marks were hit"
    if missing:
        yield f"never: {', '.join(missing)}"
