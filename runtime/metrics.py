"""The metrics registry: owners count in plain attributes, and a scrape reads them.

A labelled counter object costs microseconds per increment and kilobytes per series; an integer in
the owner's own slot costs neither. So nothing here is called on the hot path. An owner registers
`collect`, a callable that yields `Family` values, and only a scrape calls it. The names are those
of Strimzi's JMX rules for Kafka's MBeans.

`exposition` writes Prometheus' text format, or OpenMetrics, in pieces, so that the node's event
loop can do other work between two pieces. Values of the process itself (`process_*`) come from
prometheus_client. It is imported at the first scrape, because its import takes 20 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

Labels: TypeAlias = dict[str, str]
Sample: TypeAlias = tuple[Labels | str, float]
"""Labels, or their text from `rendered`, for many series with the same labels."""
Kind: TypeAlias = Literal["counter", "gauge", "summary", "histogram", "untyped"]


class Family(NamedTuple):
    """One metric with all its series.

    A sample's label `__name__` overrides the series name, which a summary needs for its `_count`.
    `texts` follow the samples; each consists of whole lines, as `series_lines` returns them. They
    are for thousands of series that rarely change.
    """

    name: str
    help: str
    kind: Kind
    samples: Sequence[Sample] | Iterable[Sample]
    texts: Iterable[bytes] = ()


Collector: TypeAlias = Callable[[], Iterable[Family | None]]
"""None between families, or instead of any, is a pause: the scrape may let other work run. A
collector that adds up thousands of values yields some, and passes its samples as a generator.
"""

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""The quantiles of Kafka's histograms, as the JMX exporter labels them."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text"
OPEN_CONTENT_TYPE = f"{OPEN_METRICS}; version=1.0.0; charset=utf-8"
_TOTAL = "_total"


def wants_open_metrics(accept: str) -> bool:
    """Return whether an Accept header prefers OpenMetrics to Prometheus' text (RFC 9110, 12.5.1).

    A header without a preference, or none at all, gets text. Equal weights get OpenMetrics if the
    header names it.
    """
    open_metrics = text = 0.0
    for entry in accept.split(","):
        kind, *parameters = (part.strip() for part in entry.lower().split(";"))
        weight = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        if kind == OPEN_METRICS:
            open_metrics = max(open_metrics, weight)
        elif kind in ("text/plain", "text/*", "*/*"):
            text = max(text, weight)
    return open_metrics > 0.0 and open_metrics >= text


class Metrics:
    """Collectors in the order of their registration."""

    def __init__(self) -> None:
        self._collectors: dict[int, Collector] = {}
        self._next_id = 0
        self._process: Any = None

    def register(self, collect: Collector) -> Callable[[], None]:
        """Add a collector; call the returned function to remove it."""
        key = self._next_id
        self._next_id += 1
        self._collectors[key] = collect

        def remove() -> None:
            self._collectors.pop(key, None)

        return remove

    def families(self) -> Iterator[Family | None]:
        for collect in list(self._collectors.values()):
            yield from collect()

    def exposition(
        self, *, process: bool = True, lines_per_piece: int = 250, open_metrics: bool = False
    ) -> Iterator[bytes]:
        """Yield Prometheus text or OpenMetrics in pieces of about `lines_per_piece` lines.

        An empty piece is a pause. Each text of a family is a piece of its own.
        """
        lines: list[str] = []
        lines_of = _open_lines if open_metrics else _family_lines
        for family in self.families():
            if family is None:
                yield b""
                continue
            for line in lines_of(family):
                lines.append(line)
                if len(lines) >= lines_per_piece:
                    yield "".join(lines).encode()
                    lines.clear()
            for text in family.texts:
                if lines:
                    yield "".join(lines).encode()
                    lines.clear()
                yield text
        if lines:
            yield "".join(lines).encode()
        if process:
            yield self._process_text(open_metrics)
        elif open_metrics:
            yield b"# EOF\n"

    def _process_text(self, open_metrics: bool) -> bytes:
        if self._process is None:
            from prometheus_client import CollectorRegistry
            from prometheus_client.process_collector import ProcessCollector

            self._process = CollectorRegistry()
            ProcessCollector(registry=self._process)
        import prometheus_client
        from prometheus_client.openmetrics import exposition

        encode: Any = prometheus_client.generate_latest
        if open_metrics:
            encode = exposition.generate_latest
        text: bytes = encode(self._process)
        return text


def _family_lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {_escape_help(family.help)}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    for labels, value in family.samples:
        if isinstance(labels, str):
            yield f"{family.name}{labels} {_number(value)}\n"
        else:
            name = labels.get("__name__", family.name)
            yield f"{name}{rendered(labels)} {_number(value)}\n"


def _open_lines(family: Family) -> Iterator[str]:
    """Yield the lines of a family in OpenMetrics, whose types require certain names.

    A counter without `_total` has the type unknown. So has a summary, each suffix separately,
    because its quantiles would need another notation.
    """
    name, kind = family.name, family.kind
    if kind == "counter" and name.endswith(_TOTAL):
        name = name.removesuffix(_TOTAL)
    elif kind != "gauge":
        kind = "untyped"
    yield from _open_head(name, family.help, kind)
    others: dict[str, list[str]] = {}
    for labels, value in family.samples:
        if isinstance(labels, str):
            yield f"{family.name}{labels} {_number(value)}\n"
            continue
        series = labels.get("__name__", family.name)
        line = f"{series}{rendered(labels)} {_number(value)}\n"
        if series == family.name:
            yield line
        else:
            others.setdefault(series, []).append(line)
    for series, lines in others.items():
        yield from _open_head(series, family.help, "untyped")
        yield from lines


def _open_head(name: str, text: str, kind: Kind) -> Iterator[str]:
    yield f"# HELP {name} {_escape_label(text)}\n"
    yield f"# TYPE {name} {'unknown' if kind == 'untyped' else kind}\n"


def rendered(labels: Labels) -> str:
    """Return labels as they follow a series' name."""
    inner = ",".join(
        f'{key}="{_escape_label(text)}"' for key, text in labels.items() if key != "__name__"
    )
    return f"{{{inner}}}" if inner else ""


def series_lines(name: str, labels: Sequence[str], values: Sequence[int]) -> list[str]:
    """Return one line per series whose labels are `rendered`; booleans are written as numbers."""
    return [f"{name}{label} {int(value)}\n" for label, value in zip(labels, values, strict=True)]


def single(name: str, text: str, value: float, kind: Kind = "gauge") -> Family:
    """Return a family of one series without labels."""
    return Family(name, text, kind, [({}, value)])


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))  # also for booleans and members of an enumeration
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
