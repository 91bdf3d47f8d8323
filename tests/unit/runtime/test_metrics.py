import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from runtime.metrics import Family, Metrics, rendered, series_lines, single, wants_open_metrics


def text(metrics: Metrics, **kwargs) -> str:
    return b"".join(metrics.exposition(process=False, **kwargs)).decode()


def test_text_format_escapes_and_suffixes():
    metrics = Metrics()
    metrics.register(
        lambda: [
            Family("kafka_a_total", "help \\ text\nmore", "counter", [({"topic": 'x"\n\\'}, 3)]),
            Family(
                "kafka_b",
                "b",
                "summary",
                [({"quantile": "0.5"}, 1.5), ({"__name__": "kafka_b_count"}, 2)],
            ),
        ]
    )
    assert text(metrics) == (
        "# HELP kafka_a_total help \\\\ text\\nmore\n"
        "# TYPE kafka_a_total counter\n"
        'kafka_a_total{topic="x\\"\\n\\\\"} 3\n'
        "# HELP kafka_b b\n"
        "# TYPE kafka_b summary\n"
        'kafka_b{quantile="0.5"} 1.5\n'
        "kafka_b_count 2\n"
    )


def test_removed_collectors_are_not_read():
    metrics = Metrics()
    remove = metrics.register(lambda: [Family("a", "a", "gauge", [({}, 1)])])
    remove()
    remove()
    assert text(metrics) == ""


def test_pieces_are_bounded():
    metrics = Metrics()
    samples = [({"n": str(n)}, n) for n in range(1000)]
    metrics.register(lambda: [Family("a", "a", "gauge", samples)])
    pieces = list(metrics.exposition(process=False, lines_per_piece=100))
    assert len(pieces) == 11
    assert all(piece.count(b"\n") <= 100 for piece in pieces)


def test_special_numbers():
    metrics = Metrics()
    values = [float("nan"), float("inf"), float("-inf")]
    metrics.register(lambda: [Family("a", "a", "gauge", [({}, value) for value in values])])
    assert text(metrics).splitlines()[2:] == ["a NaN", "a +Inf", "a -Inf"]


def test_process_series_come_from_the_client_library():
    assert b"process_cpu_seconds_total" in b"".join(Metrics().exposition())


def test_labels_rendered_once_serve_many_series():
    metrics = Metrics()
    labels = rendered({"topic": 'x"', "partition": "0"})
    metrics.register(lambda: [Family("a", "a", "gauge", [(labels, 1)]), single("b", "b", 2)])
    assert text(metrics).splitlines()[2::3] == ['a{topic="x\\"",partition="0"} 1', "b 2"]


def test_a_collector_may_pause():
    metrics = Metrics()
    metrics.register(lambda: iter([None, single("a", "a", 1), None]))
    pieces = list(metrics.exposition(process=False))
    assert pieces.count(b"") == 2
    assert pieces[-1].endswith(b"a 1\n")


def test_open_metrics_has_the_same_series_under_types_that_fit():
    metrics = Metrics()
    metrics.register(
        lambda: [
            Family("a_total", 'say "x"\n', "counter", [({"topic": 'x"\n'}, 3)]),
            Family("b_count", "b", "counter", [({}, 4)]),
            Family(
                "c",
                "c",
                "gauge",
                [('{p="1"}', 5)],
                ["".join(series_lines("c", ['{p="2"}'], [6])).encode()],
            ),
            Family(
                "d",
                "d",
                "summary",
                [({"quantile": "0.50"}, 1.5), ({"__name__": "d_count"}, 2), ({"quantile": "1"}, 3)],
            ),
        ]
    )
    shown = text(metrics, open_metrics=True)
    assert shown.endswith("\n# EOF\n")
    found = list(text_string_to_metric_families(shown))
    assert [(one.name, one.type) for one in found] == [
        *(("a", "counter"), ("b_count", "unknown"), ("c", "gauge"), ("d", "unknown")),
        ("d_count", "unknown"),
    ]
    assert found[0].documentation == 'say "x"\n'
    series = {line for line in shown.splitlines() if line[0] != "#"}
    assert series == {line for line in text(metrics).splitlines() if line[0] != "#"}


def test_open_metrics_ends_once_with_the_process():
    shown = b"".join(Metrics().exposition(open_metrics=True)).decode()
    assert shown.count("# EOF") == 1 and shown.endswith("# EOF\n")
    assert {"process_cpu_seconds"} <= {one.name for one in text_string_to_metric_families(shown)}


PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,/;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/html, */*;q=0.1", False),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; version=1.0.0 ; Q=0.5", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.9", False),
        (PROMETHEUS_ACCEPT, True),
        (",;,;q", False),
    ],
)
def test_open_metrics_is_for_those_who_prefer_it(accept, wanted):
    assert wants_open_metrics(accept) is wanted
