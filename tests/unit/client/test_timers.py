"""Time limits of the client: each belongs to one call, one partition and one open client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client import consumer as consumer_module
from client.cluster_client import ClusterClient
from client.connections import CONNECT_TIMEOUT_MS, ConnectionPool, opened
from client.consumer import Consumer
from client.errors import ClientClosed
from client.group_member import GroupMember
from client.leaders import Leader
from client.producer import IdempotentProducer, NotProduced
from protocol.batch import Record
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.heartbeat import HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.transport.client import Connection, ConnectionLost
from testkit.memory.cluster import batch, cluster, connected


class Gate:
    """Holds back every attempt to connect until it is `open`."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.reached = asyncio.Event()
        self.limits_ms: list[float] = []


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    connect = Connection.connect

    async def held(
        host: str, port: int, client_id: str | None, timeout_ms: float, **options: Any
    ) -> Connection:
        made.limits_ms.append(timeout_ms)
        made.reached.set()
        await made.open.wait()
        return await connect(host, port, client_id, timeout_ms, **options)

    monkeypatch.setattr(Connection, "connect", held)
    return made


# --- connections ----------------------------------------------------------------------------------


async def test_connection_being_opened_outlasts_its_first_caller(gate: Gate) -> None:
    """The timeout of the caller that began an attempt ends only that caller's wait."""
    async with cluster(1) as world:
        pool = ConnectionPool("c")
        address = world.servers[0].address
        with pytest.raises(ConnectionLost, match="no connection after 1 ms"):
            await opened(pool.begin(address, None), 1.0)
        patient = asyncio.ensure_future(opened(pool.begin(address, None), 10_000.0))
        await asyncio.sleep(0)
        gate.open.set()
        assert not (await patient).is_closed
        assert gate.limits_ms == [CONNECT_TIMEOUT_MS]
        await pool.close()


async def test_caller_of_a_connection_being_opened_waits_for_its_own_timeout(
    gate: Gate,
) -> None:
    """A caller that shares an attempt does not take over the timeout of its first caller."""
    pool = ConnectionPool("c")
    address = ("127.0.0.1", 1)
    first = asyncio.ensure_future(opened(pool.begin(address, None), 1_000_000.0))
    await asyncio.sleep(0)
    with pytest.raises(ConnectionLost, match="no connection after 5 ms"):
        await opened(pool.begin(address, None), 5.0)
    await pool.close()
    with pytest.raises(ConnectionLost, match="while it was being opened"):
        await first


async def test_client_closed_while_connecting_fails_its_callers_without_cancelling_them(
    gate: Gate,
) -> None:
    """A CancelledError in a task that was not cancelled ends that task as if its owner had."""
    client = ClusterClient([("127.0.0.1", 1)], "c")
    caller = asyncio.ensure_future(client.metadata([], 60_000.0))
    await gate.reached.wait()
    await client.close()
    with pytest.raises(ClientClosed):
        await caller


async def test_rebootstrap_while_connecting_lets_other_callers_retry(gate: Gate) -> None:
    """KIP-1242: the caller that finds another cluster discards the connections of all callers.
    They retry; none is cancelled."""
    async with cluster(1) as world:
        client = ClusterClient([world.servers[0].address], "c")
        caller = asyncio.ensure_future(client.metadata([], 60_000.0))
        await gate.reached.wait()
        client._rebootstrap()
        gate.open.set()
        assert (await caller).cluster_id == "c"
        await client.close()


async def test_closed_client_opens_no_connection() -> None:
    """A retry that was waiting when the client was closed ends with ClientClosed."""
    async with cluster(1) as world, connected(world) as client:
        await client.close()
        accepted = world.servers[0].connection_stats.accepted
        with pytest.raises(ClientClosed):
            await client.metadata([], 60_000.0)
        with pytest.raises(ClientClosed):
            await client.produce("t", 0, batch(b"a"), timeout_ms=60_000.0)
        assert world.servers[0].connection_stats.accepted == accepted


async def test_request_any_with_hanging_brokers_ends_at_its_timeout(gate: Gate) -> None:
    """The timeout is that of the whole call, not of each broker that is tried."""
    client = ClusterClient([("127.0.0.1", port) for port in range(1, 21)], "c")
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    with pytest.raises(ConnectionLost):
        await client.metadata([], 100.0)
    assert loop.time() - begun_s < 1.0
    await client.close()


async def test_producer_batch_fails_if_the_connection_is_discarded_while_being_opened(
    gate: Gate,
) -> None:
    """A lane that was cancelled together with its connection left its batches without an
    outcome."""
    client = ClusterClient([("127.0.0.1", 1)], "c")
    client.cache.brokers[0] = ("127.0.0.1", 1)
    client.cache.leaders["t", 0] = Leader(0, 1)
    producer = IdempotentProducer(client, delivery_timeout_ms=200.0, request_timeout_ms=100.0)
    sent = producer.send("t", 0, [Record(timestamp=1, value=b"a")])
    await gate.reached.wait()
    client._connections.discard()
    with pytest.raises(NotProduced):
        await sent
    await producer.close()
    await client.close()


# --- the consumer ---------------------------------------------------------------------------------


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "RETRY_WAIT_MS", 1.0)


class TwoLeaders(ClusterClient):
    """A client of brokers 0 and 1, which lead partition 0 and 1; `failing` ones do not answer."""

    def __init__(self) -> None:
        super().__init__([], "c")
        self.failing = {0}
        self.cache.brokers = {0: ("h", 1), 1: ("h", 2)}
        self.cache.leaders = {("t", node): Leader(node, 1) for node in (0, 1)}

    async def topic(self, *_: Any, **__: Any) -> Any:
        return None

    async def request_broker(self, node_id: int, message: FetchRequest, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        if node_id in self.failing:
            raise ConnectionLost("no answer")
        return FetchResponse()


@pytest.mark.usefixtures("hurry")
async def test_answer_of_one_leader_does_not_extend_the_wait_for_another() -> None:
    """`leader_timeout_ms` is the wait for the leaders of one partition."""
    consumer = Consumer(TwoLeaders(), leader_timeout_ms=20.0)
    consumer.assign({("t", 0): 0, ("t", 1): 0})
    with pytest.raises(ConnectionLost):
        for _ in range(1_000_000):
            await consumer.poll()


@pytest.mark.usefixtures("hurry")
async def test_failure_of_an_earlier_assignment_does_not_shorten_the_next_wait() -> None:
    """A wait that began for partitions of an earlier assignment ends with it."""
    client = TwoLeaders()
    consumer = Consumer(client, leader_timeout_ms=20.0)
    consumer.assign({("t", 0): 0})
    await consumer.poll()
    consumer._failing_since_s = {key: s - 10.0 for key, s in consumer._failing_since_s.items()}
    consumer.assign({("t", 0): 0})
    assert await consumer.poll() == []


@pytest.mark.usefixtures("hurry")
async def test_time_between_polls_does_not_count_as_a_leaders_silence() -> None:
    """A consumer that processed records for longer than `leader_timeout_ms` has not waited for the
    leader in that time."""
    consumer = Consumer(TwoLeaders(), leader_timeout_ms=50.0)
    consumer.assign({("t", 0): 0})
    await consumer.poll()
    await asyncio.sleep(0.1)
    assert await consumer.poll() == []


# --- the group ------------------------------------------------------------------------------------


async def test_join_waits_for_the_whole_rebalance_timeout() -> None:
    """A JoinGroup is answered at the rebalance timeout at the latest. The client's limit for other
    requests (10 s) closed the connection before, together with all requests on it."""
    asked: list[tuple[float, float]] = []

    class Client(ClusterClient):
        async def request_coordinator(  # type: ignore[override]
            self, _: str, message: Any, timeout_ms: float, *, answer_ms: float = 10_000.0
        ) -> Any:
            assert isinstance(message, JoinGroupRequest)
            asked.append((timeout_ms, answer_ms))
            return JoinGroupResponse(error_code=ErrorCode.NONE, member_id="m", leader="x")

    member = GroupMember(Client([], "c"), "g", ["t"], rebalance_timeout_ms=60_000)
    await member._join()
    assert asked == [(120_000.0, 65_000.0)]


@pytest.mark.parametrize(
    ("error", "rejoins_as"),
    [(ErrorCode.ILLEGAL_GENERATION, "m"), (ErrorCode.UNKNOWN_MEMBER_ID, "")],
)
async def test_member_of_an_earlier_generation_joins_again_under_its_id(
    error: ErrorCode, rejoins_as: str
) -> None:
    """As in Kafka: only UNKNOWN_MEMBER_ID ends a member id. The coordinator would wait for the
    session timeout of an id that its member has dropped, and the rebalance with it."""

    class Client(ClusterClient):
        async def request_coordinator(self, *_: Any, **__: Any) -> Any:
            return HeartbeatResponse(error_code=error)

    class Member(GroupMember):
        joined_as = ""

        async def join(self) -> None:
            self.joined_as = self.member_id

    member = Member(Client([], "c"), "g", ["t"], auto_commit_interval_ms=None)
    member.member_id = "m"
    member.joined_as = "not at all"
    await member._keep()
    assert member.joined_as == rejoins_as


async def test_request_broker_waits_for_the_answer_as_long_as_its_caller_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time limit of one answer is the caller's, and 10 s without one."""
    waits: list[float] = []

    async def request(_: Connection, message: Any, timeout_ms: float, version: int | None) -> Any:
        waits.append(timeout_ms)
        return JoinGroupResponse()

    async with cluster(1) as world, connected(world) as client:
        monkeypatch.setattr(Connection, "request", request)
        await client.request_broker(0, JoinGroupRequest(), 60_000.0, answer_ms=50_000.0)
        await client.request_broker(0, JoinGroupRequest(), 60_000.0)
    assert waits == [50_000.0, 10_000.0]
