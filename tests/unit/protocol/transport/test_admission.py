"""The admission gate, with connections that only record its decisions."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.transport.admission import ConnectionGate, ConnectionLimits, ListenerLimits


class Visitor:
    def __init__(self, gate: ConnectionGate, name: str, host: str, listener: str) -> None:
        self.gate = gate
        self.name = name
        self.peer_host = host
        self.listener = listener
        self.served = False
        self.closed: str | None = None
        self.quiet = 0.0

    def begin(self) -> None:
        self.served = True

    def close(self, reason: str) -> None:
        self.closed = reason

    def quiet_ms(self, now_ms: float) -> float:
        return self.quiet


class House:
    """A gate and its connections."""

    def __init__(self, *listeners: str, **limits: Any) -> None:
        self.gate = ConnectionGate(ConnectionLimits(**limits))
        for listener in listeners:
            self.gate.listening(listener)
        self.count = 0

    def come(self, now_ms: float = 0.0, host: str = "10.0.0.1", listener: str = "CLIENT") -> Any:
        """Open a connection. Returns: the connection, or the reason of the refusal."""
        self.count += 1
        visitor = Visitor(self.gate, f"visitor {self.count}", host, listener)
        refusal = self.gate.enter(visitor, now_ms)
        return visitor if refusal is None else refusal

    def go(self, visitor: Visitor, now_ms: float = 0.0) -> None:
        self.gate.leave(visitor)
        self.gate.pump(now_ms)


def test_gate_wakes_at_no_time_for_a_connection_that_waits_for_room() -> None:
    """A time that has passed would wake the gate in every iteration of the event loop."""
    house = House(connections_max=1, rate_max=1)
    first, second = house.come(), house.come()
    assert (first.served, second.served) == (True, False)
    house.gate.pump(5_000.0)
    assert house.gate.wake_ms() is None
    house.go(first, 6_000.0)
    assert second.served


def test_held_gate_wakes_at_no_time_for_a_connection_that_was_due() -> None:
    house = House(rate_max=1)
    while house.come().served:
        pass
    due_ms = house.gate.wake_ms()
    assert due_ms is not None and due_ms > 0.0
    house.gate.hold()
    assert house.gate.wake_ms() is None
    house.gate.release(due_ms - 1.0)
    assert house.gate.wake_ms() == due_ms


def test_held_gate_lets_all_wait_until_release() -> None:
    house = House(waiting_max=1, rate_max=1000)
    house.gate.hold()
    visitors = [house.come() for _ in range(100)]
    assert not any(visitor.served for visitor in visitors)
    assert (house.gate.waiting, house.gate.wake_ms()) == (100, None)
    house.go(visitors.pop())
    house.gate.release(0.0)
    assert all(visitor.served for visitor in visitors)
    assert house.come().served


def test_without_limits_everyone_is_served() -> None:
    house = House()
    visitors = [house.come() for _ in range(1000)]
    assert all(visitor.served for visitor in visitors)
    assert (house.gate.served, house.gate.waiting, house.gate.wake_ms()) == (1000, 0, None)
    for visitor in visitors:
        house.go(visitor)
        house.go(visitor)
    assert house.gate.served == 0


def test_over_the_limit_new_ones_wait_in_order() -> None:
    house = House(connections_max=2)
    first, second, third, fourth = (house.come() for _ in range(4))
    assert (first.served, second.served, third.served, fourth.served) == (True, True, False, False)
    assert house.gate.wake_ms() == 0.0 or house.gate.wake_ms() is None
    house.go(first)
    assert third.served and not fourth.served
    house.go(third)
    assert fourth.served
    assert house.gate.waiting == 0


def test_limits_may_change() -> None:
    house = House(connections_max=1)
    first, second = house.come(), house.come()
    house.gate.set_limits(ConnectionLimits(connections_max=2), 0.0)
    assert second.served
    house.gate.set_limits(ConnectionLimits(connections_max=1), 0.0)
    third = house.come()
    house.go(first)
    assert not third.served
    house.go(second)
    assert third.served


def test_admission_skips_a_waiting_connection_that_closed() -> None:
    house = House(connections_max=1)
    first, second, third = (house.come() for _ in range(3))
    house.go(second)
    assert not third.served
    house.go(first)
    assert third.served and not second.served


def test_admission_refuses_connections_over_the_waiting_limit() -> None:
    house = House(connections_max=1, waiting_max=2)
    first, second, _ = (house.come() for _ in range(3))
    assert house.come() == "too many connections wait to be served"
    house.go(first)
    assert second.served
    assert not house.come().served


def test_admission_without_free_descriptors_refuses_at_once() -> None:
    house = House(descriptors_max=2)
    first, _ = house.come(), house.come()
    assert house.come() == "no file descriptors are left for connections"
    house.go(first)
    assert house.come().served


def test_one_listener_may_have_a_limit_of_its_own() -> None:
    house = House("A", "B", listeners={"A": ListenerLimits(connections_max=1)})
    assert house.come(listener="A").served
    assert not house.come(listener="A").served
    assert house.come(listener="B").served


def test_the_protected_listener_is_served_over_the_limit() -> None:
    house = House("CLIENT", "REPLICATION", connections_max=2, protected="REPLICATION")
    first, second = house.come(), house.come()
    first.quiet = 10.0
    broker = house.come(listener="REPLICATION")
    assert broker.served
    assert first.closed == "its place is needed by another broker" and second.closed is None
    other = house.come(listener="REPLICATION")
    assert other.served and second.closed is not None
    assert house.come(listener="REPLICATION").served
    assert not house.come().served
    house.go(first)


def test_a_single_listener_is_not_protected() -> None:
    house = House("CLIENT", connections_max=1, protected="CLIENT")
    assert house.come().served
    assert not house.come().served


def test_addresses_have_limits_and_overrides() -> None:
    house = House(per_ip_max=1, per_ip_overrides={"10.0.0.9": 2, "10.0.0.8": 0})
    first = house.come()
    assert first.served
    assert house.come() == "more than 1 connections from one address"
    assert house.come(host="10.0.0.2").served
    assert [bool(getattr(house.come(host="10.0.0.9"), "served", 0)) for _ in range(3)] == [
        True,
        True,
        False,
    ]
    assert house.come(host="10.0.0.8") == "more than 0 connections from one address"
    house.go(first)
    assert house.come().served


def test_the_creation_rate_delays() -> None:
    house = House(rate_max=10)
    visitors = [house.come() for _ in range(120)]
    served = sum(visitor.served for visitor in visitors)
    assert served == 100
    now_ms = 0.0
    while (wake_ms := house.gate.wake_ms()) is not None:
        assert wake_ms > now_ms
        now_ms = wake_ms
        house.gate.pump(now_ms)
    assert [visitor.served for visitor in visitors if not isinstance(visitor, str)] == [True] * 120
    # 120 connections at 10 per second take 12 s, the initial burst included.
    assert 2_000 <= now_ms <= 12_000


def test_the_creation_rate_of_one_listener() -> None:
    house = House(
        "A", "B", rate_max=1000, listeners={"A": ListenerLimits(rate_max=1)}, protected="B"
    )
    assert sum(house.come(listener="A").served for _ in range(20)) == 10
    assert all(house.come(listener="B").served for _ in range(20))


@pytest.mark.parametrize("hosts", [1, 3])
def test_the_quota_of_an_address_delays_and_then_closes(hosts: int) -> None:
    gate = ConnectionGate(ConnectionLimits(), ip_rate=lambda host: None if host == "free" else 2.0)
    for n in range(hosts):
        host = f"10.0.0.{n}"
        visitors = [Visitor(gate, "", host, "CLIENT") for _ in range(25)]
        assert all(gate.enter(visitor, 0.0) is None for visitor in visitors)
        assert [visitor.served for visitor in visitors] == [True] * 20 + [False] * 5
    free = Visitor(gate, "", "free", "CLIENT")
    assert gate.enter(free, 0.0) is None and free.served
    assert gate.waiting == 5 * hosts
    wake_ms = gate.wake_ms()
    assert wake_ms is not None and 0.0 < wake_ms <= 1_000.0
    gate.pump(wake_ms)
    assert all(visitor.closed for visitor in visitors[20:])
    for visitor in visitors[20:]:
        gate.leave(visitor)
    late = Visitor(gate, "", "10.0.0.0", "CLIENT")
    assert gate.enter(late, 20_000.0) is None and late.served
