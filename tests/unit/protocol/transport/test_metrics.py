"""The counters of the transport, and their series in a scrape."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import REMOVED_APIS, response_class
from protocol.messages.produce import ProduceResponse
from protocol.transport.error_codes import count_errors
from protocol.transport.request_metrics import TransportMetrics, quantile_ms
from protocol.transport.stats import BUCKETS, ApiStats, ConnectionStats
from runtime.clock import ManualClock
from runtime.metrics import Metrics

REQUESTS = "kafka_network_requestmetrics_"


def exposed(metrics: TransportMetrics) -> dict[str, float]:
    registry = Metrics()
    registry.register(metrics.collect)
    text = b"".join(registry.exposition(process=False)).decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in lines}


def metrics_of(clock: ManualClock, *stats: ApiStats) -> TransportMetrics:
    return TransportMetrics(
        clock.monotonic_ms, lambda: stats, lambda: [("PLAINTEXT", ConnectionStats())]
    )


def test_every_response_class_can_be_looked_through() -> None:
    for api in set(ApiKey) - REMOVED_APIS:
        codes: list[int] = []
        count_errors(response_class(api))(response_class(api)(), codes.append)
        assert codes == []


def test_errors_inside_a_response_are_found() -> None:
    topic = ProduceResponse.TopicProduceResponse
    partition = ProduceResponse.PartitionProduceResponse
    response = ProduceResponse(
        responses=[
            topic(partition_responses=[partition(error_code=3), partition()]),
            topic(partition_responses=[partition(error_code=6), partition(error_code=3)]),
        ]
    )
    codes: list[int] = []
    count_errors(ProduceResponse)(response, codes.append)
    assert codes == [3, 6, 3]


def test_errors_are_named() -> None:
    stats = ApiStats("Produce", 13)
    stats.requests[13] = 2
    for code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS):
        stats.add_error(code)
    shown = exposed(metrics_of(ManualClock(), stats))
    assert shown[REQUESTS + 'errors_total{request="Produce",error="NOT_ENOUGH_REPLICAS"}'] == 2
    assert shown[REQUESTS + 'requests_total{request="Produce",version="13"}'] == 2


def test_a_phase_that_did_not_happen_took_no_time() -> None:
    stats = ApiStats("Fetch", 18)
    stats.requests[18] = 10
    for _ in range(9):
        stats.answered(0.0, 1.0, 0.1, 1.1)
    stats.waited(500.0, 4.0)
    stats.answered(0.0, 1.0, 0.1, 505.0)
    shown = exposed(metrics_of(ManualClock(), stats))
    for phase in ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total"):
        assert shown[REQUESTS + phase + 'timems_count{request="Fetch"}'] == 10
    remote = REQUESTS + 'remotetimems{request="Fetch",quantile='
    assert shown[remote + '"0.75"}'] < 0.002
    assert 262 < shown[remote + '"0.99"}'] < 525
    assert shown[REQUESTS + 'totaltimems_sum{request="Fetch"}'] == 9 * 1.1 + 505.0


def test_quantiles_forget_what_is_minutes_old() -> None:
    clock = ManualClock()
    stats = ApiStats("Fetch", 18)
    stats.requests[18] = 1
    metrics = metrics_of(clock, stats)
    p99 = REQUESTS + 'localtimems{request="Fetch",quantile="0.99"}'
    for _ in range(100):
        stats.answered(0.0, 900.0, 0.0, 900.0)
    assert exposed(metrics)[p99] > 500
    for _ in range(2):
        clock.advance(61_000)
        stats.answered(0.0, 1.0, 0.0, 1.0)
        exposed(metrics)
    assert exposed(metrics)[p99] < 2
    for _ in range(3):
        clock.advance(61_000)
        last = exposed(metrics)
    assert last[p99] > 500, "with nothing new, all that there ever was"


def test_kinds_of_an_api_are_counted_apart_and_together() -> None:
    parent = ApiStats("Fetch", 18)
    kinds = [ApiStats("FetchConsumer", 18, "Fetch"), ApiStats("FetchFollower", 18, "Fetch")]
    for count, one in enumerate(kinds, 1):
        one.requests[18] = count
    shown = exposed(metrics_of(ManualClock(), parent, *kinds))
    series = REQUESTS + 'requests_total{request="%s",version="18"}'
    assert [shown[series % name] for name in ("Fetch", "FetchConsumer", "FetchFollower")] == [
        3,
        1,
        2,
    ]


def test_quantiles_are_interpolated() -> None:
    buckets = [0] * BUCKETS
    buckets[11] = 100  # 1.024 to 2.048 ms
    assert quantile_ms(buckets, 50.0) == 1.536
    assert quantile_ms([0] * BUCKETS, 0.0) == 0.0
