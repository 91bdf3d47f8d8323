from runtime.metrics import Family, Metrics, rendered, single


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
