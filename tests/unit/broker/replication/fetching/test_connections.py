"""A fetcher's connection to its leader."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.metadata.cache import MetadataCache
from broker.peers.peer import Registration
from broker.peers.pool import PeerPool
from broker.replication.fetching.connections import (
    FetcherContext,
    FetcherLink,
    Fetchers,
    LeaderLink,
    OffsetReset,
)
from broker.replication.fetching.fetcher import FetcherSettings, Reset
from broker.replication.fetching.offset_resets import ListOffsetsReset
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import MetadataRequest
from protocol.transport.dispatch import HandlerTable, RequestContext
from runtime.tasks import Supervisor
from testkit.memory.replicas import Cluster, answer_of
from testkit.memory.sockets import LIMIT_S, Echo, serving
from testkit.memory.turns import until
from testkit.processes.ports import free_port


class OneAnswer:
    """A connection that is closed or open."""

    is_closed = False

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


class OneAddress(PeerPool):
    """A pool that finds each broker at one address."""

    def __init__(self, metadata: MetadataCache, address: tuple[str, int] | None) -> None:
        super().__init__(metadata, listener="PLAINTEXT")
        self.address = address

    def registration(self, broker_id: int) -> Registration | None:
        return None if self.address is None else Registration(self.address, 1)


def context_of(
    c: Cluster,
    supervisor: Supervisor,
    resets: OffsetReset | None = None,
    address: tuple[str, int] | None = None,
) -> FetcherContext:
    return FetcherContext(
        node_id=2,
        endpoint=lambda _: address,
        peers=OneAddress(c[2].metadata, address),
        broker_epoch=lambda: 1,
        clock=c.clock,
        supervisor=supervisor,
        flusher=c[2].context.flusher,
        resets=resets or ListOffsetsReset(2),
        storage_failed=c[2].replicas.storage_failed,
        carry_out=c[2].replicas.carry_out,
        timeout_ms=1000,
        throttle=c[2].context.throttles.fetching,
        lost=c[2].lost,
    )


def link_of(c: Cluster, supervisor: Supervisor) -> FetcherLink:
    return FetcherLink(c[2].fetchers[1], context_of(c, supervisor), 0)


async def test_an_answer_that_cannot_be_taken_over_ends_the_session_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Cluster(2)
    c.create(1, 2)
    supervisor = Supervisor(lambda name, error: pytest.fail(name))
    link = link_of(c, supervisor)
    assert c.request(2, 1) is not None
    connection = OneAnswer()
    link._connection = connection  # type: ignore[assignment]
    done: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
    done.set_result(answer_of(c, b""))

    def fail(*_: object) -> list[object]:
        raise KeyError(7)

    monkeypatch.setattr(link.fetcher, "answered", fail)
    link._answered(connection, done)  # type: ignore[arg-type]
    assert connection.aborted and supervisor.survived == {"fetch answer": 1}
    assert link.fetcher.in_flight == 0 and link.fetcher.counters.failed_requests == 1
    link.close()
    await supervisor.close()


class Lost(OneAnswer):
    """A connection that was lost while idle, so that no request has noticed it yet."""

    is_closed = True

    def send(self, *_: object) -> None:
        raise ConnectionResetError("lost")


class Versions(OneAnswer):
    """A leader that offers these versions of Fetch, and answers nothing."""

    def __init__(self, *offered: int) -> None:
        super().__init__()
        self.offered = offered
        self.sent: list[int | None] = []

    def offers(self, request: type[FetchRequest], version: int) -> bool:
        return version in self.offered

    def send(self, request: FetchRequest, *options: Any) -> asyncio.Future[FetchResponse]:
        self.sent.append(options[1] if len(options) > 1 else None)
        return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("threshold", "offered", "version"),
    [("1", (18, 19), 19), ("1", (18,), None), ("-1", (18, 19), None), ("0", (18, 19), None)],
)
async def test_fetch_version_19_needs_thresholds_and_a_leader_that_supports_it(
    threshold: str, offered: tuple[int, ...], version: int | None
) -> None:
    """Fetch 19 (KIP-1303) is our own; None is the highest version that Kafka also has."""
    c = Cluster(2, leader_election_eligible_local_log_bytes=threshold)
    c.create(1, 2)
    supervisor = Supervisor(lambda name, error: pytest.fail(name))
    link = link_of(c, supervisor)
    connection = Versions(*offered)
    link._connection = connection  # type: ignore[assignment]
    link._pump()
    assert connection.sent == [version]
    link.close()
    await supervisor.close()


async def test_lost_connection_is_reopened_at_once_and_then_after_backoff() -> None:
    c = Cluster(2)
    c.create(1, 2)
    supervisor = Supervisor(lambda name, error: pytest.fail(name))
    link = link_of(c, supervisor)
    now_ms = c.clock.monotonic_ms()
    for pauses in (False, True):
        connection = Lost()
        link._connection = connection  # type: ignore[assignment]
        link._pump()
        assert connection.aborted and link._connection is None
        due_ms = link.fetcher.due_ms(now_ms)
        assert due_ms is not None and (due_ms > now_ms) is pauses
        assert link._timer or link._queued, "nothing ever wakes this fetcher again"
    link.close()
    await supervisor.close()


async def test_leader_that_refuses_after_a_loss_is_gone_until_it_is_reached() -> None:
    echo = Echo()
    table = HandlerTable()
    table.serve_api_versions()
    table.register(ApiKey.METADATA, echo.metadata)
    table.register(ApiKey.FETCH, lambda *_: asyncio.get_running_loop().create_future())
    c = Cluster(2)
    c.create(1, 2)
    supervisor, lost = Supervisor(lambda name, error: pytest.fail(name)), c[2].lost
    async with asyncio.timeout(LIMIT_S):
        async with serving(table) as server:
            address = server.address
            link = FetcherLink(c[2].fetchers[1], context_of(c, supervisor, address=address), 0)
            link._pump()
            await until(lambda: link.fetcher.in_flight > 0)
            assert not lost
        await until(lambda: lost.gone(c.clock.monotonic_ms()) == {1})
        async with serving(table, port=address[1]):
            c.clock.advance(1_000)
            link._pump()
            await until(lambda: not lost)
        link.close()
        await supervisor.close()


async def test_leader_that_was_never_reached_is_not_counted_as_lost() -> None:
    c = Cluster(2)
    c.create(1, 2)
    supervisor = Supervisor(lambda name, error: pytest.fail(name))
    link = FetcherLink(
        c[2].fetchers[1], context_of(c, supervisor, address=("127.0.0.1", free_port())), 0
    )
    link._pump()
    await until(lambda: link.fetcher.counters.failed_requests > 0)
    assert not c[2].lost
    link.close()
    await supervisor.close()


class Beginning:
    """A reset that ends when the test releases it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.fails = False

    async def reset(self, link: LeaderLink, wanted: Reset) -> None:
        wanted.partition.log.bounds.bootstrapping = True
        await self.go.wait()
        wanted.partition.log.bounds.bootstrapping = False
        if self.fails:
            raise ConnectionResetError("the leader is gone")


@pytest.mark.parametrize("fails", [False, True])
async def test_s5_a_log_that_is_about_to_begin_is_not_fetched_under_a_new_leader_epoch(
    fails: bool,
) -> None:
    """S5: the replica would join the ISR, and a crash would leave nothing of its log."""
    c = Cluster(2)
    c.create(1, 2)
    supervisor = Supervisor(lambda name, error: pytest.fail(name))
    resets = Beginning()
    resets.fails = fails
    fetchers = Fetchers(context_of(c, supervisor, resets), FetcherSettings(), 1)
    partition = c[2].partition()
    fetchers.follow(partition)
    (link,) = fetchers.links
    wanted = Reset(partition, ErrorCode.OFFSET_OUT_OF_RANGE, partition.leader_epoch, -1)
    resetting = asyncio.ensure_future(link._reset(wanted))
    await asyncio.sleep(0)
    fetchers.follow(partition)  # as under a new leader epoch
    assert list(link.fetcher) == []
    resets.go.set()
    await resetting
    assert list(link.fetcher) == [partition]
    fetchers.close()
    await supervisor.close()


class Held:
    """Resets that end when the test releases them."""

    def __init__(self) -> None:
        self.go: dict[int, asyncio.Event] = {}
        """The events that release resets, by leader epoch."""
        self.begun: list[int] = []

    async def reset(self, link: LeaderLink, wanted: Reset) -> None:
        self.begun.append(wanted.leader_epoch)
        await self.go.setdefault(wanted.leader_epoch, asyncio.Event()).wait()


def asked(link: FetcherLink, c: Cluster) -> bool:
    """Return whether a fetch includes the partition once any backoff without a leader address is
    over."""
    return link.fetcher.next_request(1, c.clock.monotonic_ms() + 60_000) is not None


def turned_away(link: FetcherLink, c: Cluster) -> None:
    """Let the leader refuse the next fetch."""
    answer = answer_of(c, b"")
    answer.responses[0].partitions[0].error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    assert asked(link, c)
    link._take(answer)


async def test_s5_a_reset_of_an_old_leader_epoch_does_not_let_go_of_a_newer_ones_partition() -> (
    None
):
    """Regression: the leader refused once more, and two resets began the log at once."""
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    supervisor, resets = Supervisor(lambda name, error: pytest.fail(name)), Held()
    fetchers = Fetchers(context_of(c, supervisor, resets), FetcherSettings(), 1)
    partition = c[2].partition()
    first = partition.leader_epoch
    fetchers.follow(partition)
    (link,) = fetchers.links
    turned_away(link, c)
    await asyncio.sleep(0)
    c.change(leader=1)
    fetchers.follow(partition)
    turned_away(link, c)
    await asyncio.sleep(0)
    assert resets.begun == [first, first + 1]
    resets.go[first].set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not asked(link, c)
    resets.go[first + 1].set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert asked(link, c)
    fetchers.close()
    await supervisor.close()


async def test_s5_a_partition_that_moves_to_another_fetcher_is_reset_once() -> None:
    c = Cluster(2)
    c.create(1, 2, isr=[1])
    supervisor, resets = Supervisor(lambda name, error: pytest.fail(name)), Held()
    fetchers = Fetchers(context_of(c, supervisor, resets), FetcherSettings(), 1)
    partition = c[2].partition()
    fetchers.follow(partition)
    (link,) = fetchers.links
    turned_away(link, c)
    await asyncio.sleep(0)
    for per_leader in range(2, 9):
        fetchers.resize(per_leader)
        (now,) = fetchers.links
        if now is not link:
            break
    assert now is not link
    turned_away(now, c)
    await asyncio.sleep(0)
    assert resets.begun == [partition.leader_epoch]
    assert not asked(now, c)
    resets.go[partition.leader_epoch].set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert asked(now, c)
    fetchers.close()
    await supervisor.close()


class Asking:
    """A reset that sends a request to the leader."""

    def __init__(self) -> None:
        self.answers = 0

    async def reset(self, link: LeaderLink, wanted: Reset) -> None:
        await link.ask(MetadataRequest(topics=[]))
        self.answers += 1


async def test_offset_reset_uses_a_connection_apart_from_a_waiting_fetch() -> None:
    """A leader answers in order, and a fetch may wait `replica.fetch.wait.max.ms` for bytes."""
    echo, fetches = Echo(), 0

    def fetched(_context: RequestContext, _request: FetchRequest) -> asyncio.Future[None]:
        nonlocal fetches
        fetches += 1
        return asyncio.get_running_loop().create_future()

    table = HandlerTable()
    table.serve_api_versions()
    table.register(ApiKey.METADATA, echo.metadata)
    table.register(ApiKey.FETCH, fetched)
    async with serving(table) as server, asyncio.timeout(LIMIT_S):
        c = Cluster(2)
        c.create(1, 2)
        supervisor, asking = Supervisor(lambda name, error: pytest.fail(name)), Asking()
        fetchers = Fetchers(context_of(c, supervisor, asking, server.address), FetcherSettings(), 1)
        partition = c[2].partition()
        fetchers.follow(partition)
        (link,) = fetchers.links
        await until(lambda: fetches == 1)
        wanted = Reset(partition, ErrorCode.OFFSET_OUT_OF_RANGE, partition.leader_epoch, -1)
        await asyncio.gather(link._reset(wanted), link._reset(wanted))
        assert asking.answers == 2
        # The other one is not needed any more.
        own = "broker-2-fetcher-0-of-leader-1"
        await until(lambda: [one.client_id for one in server.connections] == [own])
        fetchers.close()
        await link._reset(wanted)
        assert asking.answers == 2, "a link that is closed asks nobody"
        await until(lambda: not list(server.connections))
        await supervisor.close()
