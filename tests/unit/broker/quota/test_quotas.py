"""Client quotas of a broker: the limit that applies, its sharing, and the throttle time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from broker.quota.metrics import QuotaMetrics
from broker.quota.quotas import RATES_MAX, ClientQuotas, QuotaKind
from runtime.clock import ManualClock
from serving.quota_limits import ANSWERS_MAX

KIND = QuotaKind.PRODUCE
KEY = KIND.value


def entity(**parts: str | None) -> Any:
    return tuple(sorted((kind.replace("_", "-"), name) for kind, name in parts.items()))


def quotas(*limits: tuple[Any, float], key: str = KEY, **settings: Any) -> ClientQuotas:
    made = ClientQuotas(**settings)
    made.replace({place: {key: value} for place, value in limits})
    return made


LEVELS = [
    (entity(user="u", client_id="c"), ("u", "c")),
    (entity(user="u", client_id=None), ("u", "c")),
    (entity(user="u"), ("u", None)),
    (entity(user=None, client_id="c"), ("u", "c")),
    (entity(user=None, client_id=None), ("u", "c")),
    (entity(user=None), ("u", None)),
    (entity(client_id="c"), (None, "c")),
    (entity(client_id=None), (None, "c")),
]


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_limit_counts(first: int) -> None:
    made = quotas(*((place, float(n + 1)) for n, (place, _) in list(enumerate(LEVELS))[first:]))
    found = made.limit(KIND, "u", "c")
    assert found == (float(first + 1), LEVELS[first][1])


def test_others_have_no_limit() -> None:
    made = quotas((entity(user="u"), 1.0), (entity(client_id="c"), 2.0))
    assert made.limit(KIND, "v", "d") is None
    assert made.limit(QuotaKind.FETCH, "u", "c") is None
    assert made.record(KIND, "v", "d", 1e12, 0.0) == 0.0
    assert made.most_at_once(KIND, "v", "d") is None
    made.take_back(KIND, "v", "d", 1.0, 0.0)


def test_a_name_is_not_the_default() -> None:
    made = quotas((entity(user=None), 1.0))
    assert made.limit(KIND, "", "") == (1.0, ("", None))
    made = quotas((entity(user=""), 1.0))
    assert made.limit(KIND, "u", "") is None


def test_clients_of_one_user_share_its_limit() -> None:
    made = quotas((entity(user="u"), 100.0))
    assert made.record(KIND, "u", "a", 1_000.0, 0.0) == 0.0
    assert made.record(KIND, "u", "b", 500.0, 0.0) == pytest.approx(5_000.0)
    assert made.record(KIND, "u", "a", 0.0, 0.0) == pytest.approx(5_000.0)


def test_the_default_is_a_limit_of_each_one() -> None:
    made = quotas((entity(client_id=None), 100.0))
    assert made.record(KIND, "u", "a", 1_100.0, 0.0) > 0.0
    assert made.record(KIND, "u", "b", 1_000.0, 0.0) == 0.0
    assert made.record(KIND, "other", "a", 0.0, 0.0) > 0.0


def test_a_changed_limit_holds_at_once_for_what_was_done() -> None:
    made = quotas((entity(user="u"), 100.0))
    assert made.record(KIND, "u", "a", 1_000.0, 0.0) == 0.0
    made.replace({entity(user="u"): {KEY: 50.0}})
    assert made.record(KIND, "u", "a", 0.0, 0.0) == pytest.approx(10_000.0)
    made.replace({})
    assert not made.active
    assert made.record(KIND, "u", "a", 1e9, 0.0) == 0.0


def test_quota_take_back_undoes_record() -> None:
    made = quotas((entity(user="u"), 100.0))
    assert made.record(KIND, "u", "a", 5_000.0, 0.0) > 0.0
    made.take_back(KIND, "u", "a", 5_000.0, 0.0)
    assert made.record(KIND, "u", "a", 1_000.0, 0.0) == 0.0


def test_quota_burst_is_limited_by_windows() -> None:
    made = quotas((entity(user="u"), 100.0), window_count=11, window_ms=1_000.0)
    assert made.most_at_once(KIND, "u", "a") == 1_000.0
    assert made.record(KIND, "u", "a", 1_000.0, 0.0) == 0.0


def test_work_is_paid_back_within_a_window() -> None:
    made = quotas((entity(user="u"), 1.0), key=QuotaKind.REQUEST.value)
    assert made.record(QuotaKind.REQUEST, "u", "a", 1e6, 0.0) == 1_000.0


def test_addresses() -> None:
    made = ClientQuotas()
    assert made.ip_rate("10.0.0.1") is None
    key = "connection_creation_rate"
    made.replace({entity(ip="10.0.0.1"): {key: 5.0}, entity(ip=None): {key: 7.0}})
    assert not made.active
    assert made.ip_rate("10.0.0.1") == 5.0
    assert made.ip_rate("10.0.0.2") == 7.0
    made.replace({entity(ip="10.0.0.1"): {key: 5.0}})
    assert made.ip_rate("10.0.0.2") is None


def test_quota_usage_for_metrics() -> None:
    made = quotas((entity(user="u"), 100.0), window_count=11, window_ms=1_000.0)
    made.record(KIND, "u", "c", 500.0, 0.0)
    ((kind, bearer, per_second, wait_ms),) = made.in_use(0.0)
    assert (kind, bearer, per_second) == (KIND, ("u", None), 50.0)
    assert math.isnan(wait_ms)
    assert made.record(KIND, "u", "d", 1_000.0, 0.0) == 5_000.0
    assert [used[3] for used in made.in_use(0.0)] == [5_000.0]
    assert made.throttled == {**dict.fromkeys(QuotaKind, 0), KIND: 1}
    assert list(made.in_use(60_000.0)) == []


def test_the_metrics_of_quotas() -> None:
    made = quotas((entity(user="u"), 100.0), key=QuotaKind.REQUEST.value)
    made.record(QuotaKind.REQUEST, "u", "c", 50_000.0, 0.0)
    families = {
        family.name: list(family.samples) for family in QuotaMetrics(made, ManualClock(0)).collect()
    }
    whose = {"resource": "Request", "user": "u", "clientId": ""}
    assert families["kafka_server_quota_byte_rate"] == []
    assert families["kafka_server_quota_request_time"] == [(whose, 5_000.0)]
    assert families["kafka_server_quota_throttle_time"] == [(whose, 1_000.0)]
    assert ({"resource": "Request"}, 1) in families["kraftbox_quota_throttled_total"]


def test_memory_does_not_grow_with_names() -> None:
    made = quotas((entity(client_id=None), 1e9))
    for n in range(RATES_MAX + ANSWERS_MAX):
        made.record(KIND, "u", f"client-{n}", 1.0, float(n * 10))
    assert len(made._usages) <= RATES_MAX
    assert len(made._limits[KIND]._answers) <= ANSWERS_MAX


def test_rates_of_busy_clients_are_bounded() -> None:
    """Each client id may have a rate of its own, and a client chooses its ids."""
    made = quotas((entity(client_id=None), 1e9))
    for n in range(RATES_MAX + 50):
        made.record(KIND, "u", f"c{n}", 1.0, 1_000.0)
    assert len(made._usages) <= RATES_MAX
    assert (KIND, (None, f"c{RATES_MAX + 49}")) in made._usages


def test_long_client_ids_are_distinguished_and_not_cached() -> None:
    made = quotas((entity(client_id=None), 1e9))
    one, other = "x" * 30_000, "x" * 30_000 + "y"
    found = {made.limit(KIND, "u", each) for each in (one, other)}
    assert len(found) == 2 and all(limit is not None for limit in found)
    assert all(len(limit.bearer[1] or "") < 200 for limit in found if limit is not None)
    assert not made._limits[KIND]._answers
    named = quotas((entity(client_id=one), 5.0))
    limit = named.limit(KIND, "u", one)
    assert limit is not None and limit.per_second == 5.0
