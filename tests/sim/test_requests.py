"""The judge of waiting requests, which objects to late ones only (P26)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol.api_keys import ApiKey
from simulation.judges.requests import LATE_S, WAITS_S, RequestJudge
from simulation.world.invariants import Violation

pytestmark = pytest.mark.sim

BEGUN_S = 10.0
TIER_WRITER = "broker-4-tier-write"


class Broker:
    """A broker where one request has waited since `BEGUN_S`; `look` shows it to the judge."""

    def __init__(self, api: ApiKey, client: str | None = "c", *, ready: bool = False) -> None:
        entry = SimpleNamespace(api=api)
        waits = SimpleNamespace(
            entry=entry, correlation_id=7, received_ms=BEGUN_S * 1000, ready=ready
        )
        connection = SimpleNamespace(client_id=client, exchange=SimpleNamespace(waiting=[waits]))
        broker = SimpleNamespace(servers=[SimpleNamespace(connections=[connection])])
        self._loop = SimpleNamespace(now_s=0.0)
        cluster: Any = SimpleNamespace(loop=self._loop)
        machine: Any = SimpleNamespace(node_id=1, cluster=cluster)
        self._life: Any = SimpleNamespace(
            machine=machine, alive=True, node=SimpleNamespace(broker=broker)
        )
        machine.life, cluster.machines = self._life, [machine]
        self._world: Any = SimpleNamespace(cluster=cluster, busy=set())
        self._judge = RequestJudge(self._world)
        self.sleep(0.0)

    def look(self, after_s: float, *, busy: bool = False) -> None:
        """Show the judge every half second since the last look, and at the end."""
        self._world.busy = {1} if busy else set()
        while self._loop.now_s + 0.5 < BEGUN_S + after_s:
            self._loop.now_s += 0.5
            self._judge.after(self._life)
        self.sleep(after_s)

    def sleep(self, after_s: float) -> None:
        """Let time pass without a look."""
        self._loop.now_s = BEGUN_S + after_s
        self._judge.after(self._life)


@pytest.mark.parametrize("api", WAITS_S)
def test_request_may_wait_for_its_own_timeout(api: ApiKey) -> None:
    broker = Broker(api)
    broker.look(WAITS_S[api] + LATE_S)
    with pytest.raises(Violation, match=f"P26: .* {api.name} 7 of c waits"):
        broker.look(WAITS_S[api] + LATE_S + 0.3)


def test_a_write_of_the_tier_gives_the_leader_eight_seconds() -> None:
    """Its followers may be away for longer than a client's producer waits."""
    broker = Broker(ApiKey.PRODUCE, TIER_WRITER)
    broker.look(8.0 + LATE_S)
    with pytest.raises(Violation, match=f"PRODUCE 7 of {TIER_WRITER} waits"):
        broker.look(8.0 + LATE_S + 0.3)


def test_produce_without_client_id_has_the_bound_of_a_client() -> None:
    with pytest.raises(Violation, match="PRODUCE"):
        Broker(ApiKey.PRODUCE, None).look(WAITS_S[ApiKey.PRODUCE] + LATE_S + 0.3)


def test_other_requests_and_ready_answers_may_wait() -> None:
    Broker(ApiKey.CREATE_TOPICS).look(100.0)
    Broker(ApiKey.PRODUCE, ready=True).look(100.0)


def test_a_node_that_an_event_was_done_to_has_its_time_once_more() -> None:
    broker = Broker(ApiKey.HEARTBEAT)
    broker.look(5.0, busy=True)
    broker.look(5.0 + LATE_S)
    with pytest.raises(Violation, match="HEARTBEAT"):
        broker.look(5.8 + LATE_S)


def test_a_time_in_which_no_node_ran_does_not_count() -> None:
    """The others were killed, and this one was paused (tiered seed 381)."""
    broker = Broker(ApiKey.FETCH)
    broker.sleep(5.0)
    broker.look(5.0 + WAITS_S[ApiKey.FETCH] + LATE_S)
    with pytest.raises(Violation, match="FETCH"):
        broker.look(5.0 + WAITS_S[ApiKey.FETCH] + LATE_S + 0.3)


def test_an_event_that_has_ended_since_the_last_look_lasted_until_now() -> None:
    broker = Broker(ApiKey.HEARTBEAT)
    broker.look(5.0, busy=True)
    broker.look(5.4)
    broker.look(5.4 + LATE_S)
