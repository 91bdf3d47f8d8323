"""Unclean recovery in the active controller: its broker connections, and operators that wait."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ParamSpec, cast

import pytest

from controller.apis import elect_leaders
from controller.brokers.registration import decide_register_broker
from controller.decision import Decision
from controller.elections.recovery_rules import WaitsFor
from controller.writer.recovery import ASK_TIMEOUT_MS
from controller.writer.writer import Controller
from metalog.loader import MetadataLoader
from metalog.quorum.node import QuorumNode
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, EncodeError, ErrorCode
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from protocol.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
)
from protocol.metadata import (
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)
from protocol.transport.client import Connection
from protocol.transport.dispatch import HandlerTable, RequestContext
from runtime.clock import LoopClock
from runtime.tasks import Supervisor
from simulation.world.loop import VirtualLoop
from simulation.world.network import Network
from testkit.memory.broker import Peer
from testkit.memory.controller import registration, settings
from testkit.memory.fake_quorum import FakeQuorum

TOPIC = b"t" * 16
BOOTSTRAP = [
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
]
P = ParamSpec("P")
Answer = Callable[[GetReplicaLogInfoRequest], Awaitable[GetReplicaLogInfoResponse]]


class Link:
    """A connection to a broker that sends `answer`, or else the answer that the world gives."""

    def __init__(self, world: World, broker_id: int, answer: Answer | None) -> None:
        self.world = world
        self.broker_id = broker_id
        self.answer = answer
        self.is_closed = False

    async def request(self, message: Any, timeout_ms: float) -> GetReplicaLogInfoResponse:
        assert isinstance(message, GetReplicaLogInfoRequest)
        assert message.broker_id == self.broker_id
        assert timeout_ms == ASK_TIMEOUT_MS
        world = self.world
        world.asked.append(self.broker_id)
        world.under_way[self.broker_id] = world.under_way.get(self.broker_id, 0) + 1
        assert world.under_way[self.broker_id] == 1, "one request per broker"
        try:
            return await (self.answer or world.answers[self.broker_id])(message)
        finally:
            world.under_way[self.broker_id] -= 1

    def abort(self) -> None:
        self.is_closed = True


class World:
    """An active controller; brokers 1 to 3, all in partition 0 of t, are registered after a power
    cut.

    Broker n's log ends at `ends[n]`. `listeners` are names of listeners: the first one is for
    brokers, at port 9000 + n, the next at 9100 + n.
    """

    def __init__(self, listeners: Sequence[str] = ("PLAINTEXT",), **properties: str) -> None:
        loop = asyncio.get_running_loop()
        self.quorum = FakeQuorum(commit_at_once=True)
        self.failures: list[BaseException] = []
        supervisor = Supervisor(lambda _, error: self.failures.append(error))
        loader = MetadataLoader(cast(QuorumNode, self.quorum), supervisor)
        self.controller = Controller(
            settings(
                unclean_recovery_manager_enabled="true",
                broker_session_timeout_ms="3600000",
                **properties,
            ),
            self.quorum,
            loader,
            clock=LoopClock(loop, 1_700_000_000_000),
            rng=random.Random(1),
            supervisor=supervisor,
            bootstrap=BOOTSTRAP,
        )
        self.controller.recovery._connect = self.connect  # type: ignore[assignment]
        self.links: list[Link] = []
        self.asked: list[int] = []
        self.under_way: dict[int, int] = {}
        self.closed: set[int] = set()
        self.for_clients: Answer | None = None
        self.ends = {1: 10, 2: 20, 3: 15}
        self.answers: dict[int, Answer] = dict.fromkeys((1, 2, 3), self.answer)
        self.quorum.become_leader(1)
        self.quorum.commit()
        for broker_id in (1, 2, 3):
            request = registration(
                broker_id,
                listeners=[
                    BrokerRegistrationRequest.Listener(
                        name=name, host="localhost", port=9000 + 100 * number + broker_id
                    )
                    for number, name in sorted(enumerate(listeners), key=lambda one: one[1])
                ],
            )
            self.controller.submit(
                lambda view, r=request: decide_register_broker(view, r),  # type: ignore[misc]
                lambda reply: reply,
            )
        self.write(
            TopicRecord(name="t", topic_id=TOPIC),
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC,
                replicas=[1, 2, 3],
                isr=[],
                leader=-1,
                leader_epoch=4,
                last_known_elr=[1, 2, 3],
            ),
        )

    def write(self, *records: Any) -> None:
        self.controller.submit(lambda view: Decision(records, None), lambda reply: reply)

    async def connect(self, host: str, port: int, timeout_ms: float) -> Connection:
        number, broker_id = divmod(port - 9000, 100)
        if broker_id in self.closed:
            raise ConnectionRefusedError(port)
        link = Link(self, broker_id, self.for_clients if number else None)
        self.links.append(link)
        return cast(Connection, link)

    async def answer(self, request: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse:
        (wanted,) = request.topic_partitions or ()
        brokers = self.controller.view().image.cluster.brokers
        return GetReplicaLogInfoResponse(
            broker_epoch=brokers[request.broker_id].epoch,
            topic_partition_log_info_list=[
                GetReplicaLogInfoResponse.TopicPartitionLogInfo(
                    topic_id=wanted.topic_id,
                    partition_log_info=[
                        GetReplicaLogInfoResponse.PartitionLogInfo(
                            partition=index,
                            last_written_leader_epoch=3,
                            current_leader_epoch=4,
                            log_end_offset=self.ends[request.broker_id],
                        )
                        for index in wanted.partitions
                    ],
                )
            ],
        )

    def unfence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            epoch = self.controller.view().image.cluster.brokers[broker_id].epoch
            self.write(UnfenceBrokerRecord(id=broker_id, epoch=epoch))

    @property
    def leader(self) -> int:
        return self.controller.view().image.topics.by_id[TOPIC].partitions[0].leader

    async def elect(
        self, kind: int, timeout_ms: int = 60_000, peer: Peer | None = None, **fields: Any
    ) -> Any:
        """Send ElectLeaders and return the whole response."""
        table = HandlerTable(unstable=True)
        elect_leaders.register(table, self.controller)
        request = ElectLeadersRequest(
            election_type=kind,
            timeout_ms=timeout_ms,
            topic_partitions=[
                ElectLeadersRequest.TopicPartitions(topic="t", **{"partitions": [0], **fields})
            ],
        )
        now_ms = asyncio.get_running_loop().time() * 1000.0
        context = RequestContext(
            cast(Any, peer or Peer()),
            ApiKey.ELECT_LEADERS,
            3,
            1,
            "test",
            now_ms,
            "User:A",
            "h",
            "L",
        )
        reply = table.entries[ApiKey.ELECT_LEADERS].handler(context, request)
        return await cast(Awaitable[Any], reply)


def in_virtual_time(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        loop = VirtualLoop(Network(random.Random(1)))
        try:
            loop.run_world(test(*args, **kwargs))
        finally:
            loop.close()

    return run


def outcome(response: ElectLeadersResponse) -> tuple[int, str | None]:
    ((result,),) = (topic.partition_result for topic in response.replica_election_results)
    assert response.error_code == 0
    return result.error_code, result.error_message


@in_virtual_time
async def test_recovery_queries_brokers_and_closes_connections() -> None:
    w = World()
    w.unfence(1, 2)
    await asyncio.sleep(1)
    assert sorted(w.asked) == [1, 2]
    assert all(link.is_closed for link in w.links)
    w.unfence(3)
    await asyncio.sleep(1)
    assert w.asked[2:] == [3]
    assert w.leader == 2
    assert all(link.is_closed for link in w.links)
    assert w.controller.stats.recovery.finished == 1
    assert w.failures == []


async def hangs(_: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse:
    await asyncio.sleep(ASK_TIMEOUT_MS / 1000)
    raise ConnectionError("too late")


async def without_api(_: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse:
    raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "it offers none")


async def cut_off(_: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse:
    raise ConnectionResetError


@pytest.mark.parametrize("for_clients", [hangs, without_api, cut_off])
@in_virtual_time
async def test_recovery_without_configured_broker_listener_tries_all(
    for_clients: Answer,
) -> None:
    """Without a configured broker listener the controller tries the registered ones in order.

    The first one does not serve the API, or does not answer.
    """
    w = World(["Z_INTERNAL", "EXTERNAL"])
    w.for_clients = for_clients
    w.unfence(1, 2, 3)
    await asyncio.sleep(10)
    assert w.leader == 2
    # One request at the wrong listener, one at the right one.
    assert sorted(w.asked) == [1, 1, 2, 2, 3, 3]
    assert all(link.is_closed for link in w.links)


@pytest.mark.parametrize(
    ("listeners", "told"),
    [
        pytest.param(
            ["INTERNAL", "EXTERNAL"], {"inter_broker_listener_name": "INTERNAL"}, id="told"
        ),
        pytest.param(["PLAINTEXT", "EXTERNAL"], {}, id="named like its protocol"),
    ],
)
def test_the_likeliest_listener_comes_first(listeners: list[str], told: dict[str, str]) -> None:
    @in_virtual_time
    async def first_try() -> None:
        w = World(listeners, **told)
        w.for_clients = cut_off
        w.unfence(1, 2, 3)
        await asyncio.sleep(10)
        assert w.leader == 2
        assert sorted(w.asked) == [1, 2, 3]

    first_try()


@in_virtual_time
async def test_a_closed_port_a_hanging_broker_and_one_without_the_api_are_no_answers() -> None:
    w = World()

    async def surprise(_: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse:
        raise ValueError("nobody foresaw this")

    w.closed = {1}
    w.answers |= {2: hangs, 3: without_api}
    w.unfence(1, 2, 3)
    await asyncio.sleep(60)
    assert w.leader == -1
    waiting = w.controller.recovery.waits_for(TOPIC, 0)
    assert waiting is not None and waiting[:2] == (WaitsFor.ANSWERS, (1, 2, 3))
    assert w.asked.count(3) < 40
    assert len([link for link in w.links if link.broker_id == 3]) == 1  # it stays connected
    w.closed = set()
    w.answers |= {2: w.answer, 3: surprise}
    await asyncio.sleep(10)
    assert w.leader == -1
    w.answers[3] = w.answer
    await asyncio.sleep(10)
    assert w.leader == 2


@in_virtual_time
async def test_recovery_of_deposed_controller_is_restarted_by_next_one() -> None:
    w = World()
    forever = asyncio.Event()

    async def hangs(_: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse:
        await forever.wait()
        raise AssertionError

    w.answers[1] = hangs
    w.unfence(1, 2, 3)
    waiting = asyncio.ensure_future(w.elect(3))
    await asyncio.sleep(1)
    assert not waiting.done()
    w.quorum.follow(2, 2)
    response = await waiting
    assert response.error_code == ErrorCode.NOT_CONTROLLER
    assert all(link.is_closed for link in w.links)
    assert w.controller.recovery.due_ms is None
    assert w.controller.stats.recovery.running == 0
    w.answers[1] = w.answer
    w.asked.clear()
    w.quorum.become_leader(3)
    w.quorum.commit()
    await asyncio.sleep(1)
    assert sorted(w.asked) == [1, 2, 3]
    assert w.leader == 2


@in_virtual_time
async def test_requested_election_is_answered_after_commit() -> None:
    w = World(unclean_recovery_strategy="None")
    w.unfence(1, 3)
    balanced = asyncio.ensure_future(w.elect(3))
    await asyncio.sleep(1)
    assert not balanced.done()
    assert outcome(await w.elect(2)) == (ErrorCode.NONE, None)
    assert w.leader == 3
    assert outcome(await balanced) == (ErrorCode.NONE, None)
    assert outcome(await w.elect(2)) == (ErrorCode.ELECTION_NOT_NEEDED, "has one")


REFUSALS = (
    ApiError(ErrorCode.KAFKA_STORAGE_ERROR, None),
    ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, None),
    EncodeError("PartitionChangeRecord.Leader", 2**31, "an int32"),
)


def refuse_appends(w: World, error: Exception) -> Callable[[], None]:
    """Refuse all appends until the returned function is called."""
    append = w.quorum.append

    def refuse(*_: Any, **__: Any) -> int:
        raise error

    w.quorum.append = refuse  # type: ignore[assignment]

    def end() -> None:
        w.quorum.append = append  # type: ignore[method-assign]

    return end


def state(w: World) -> tuple[int, int, int]:
    counts = w.controller.stats.recovery
    return w.leader, counts.finished, counts.given_up


@pytest.mark.parametrize("error", REFUSALS)
@in_virtual_time
async def test_refused_append_of_election_is_not_reported_as_elected(error: Exception) -> None:
    """M18: an election is reported only once it is committed."""
    w = World(unclean_recovery_strategy="None")
    w.unfence(1, 3)
    accept = refuse_appends(w, error)
    waiting = asyncio.ensure_future(w.elect(2))
    await asyncio.sleep(5)
    assert not waiting.done()
    assert state(w) == (-1, 0, 0)
    accept()
    assert outcome(await waiting) == (ErrorCode.NONE, None)
    assert state(w) == (3, 1, 0)


@pytest.mark.parametrize("error", REFUSALS)
@in_virtual_time
async def test_a_recovery_whose_append_was_refused_goes_on(error: Exception) -> None:
    w = World()
    w.unfence(1, 2, 3)
    accept = refuse_appends(w, error)
    await asyncio.sleep(5)
    assert state(w) == (-1, 0, 0)
    accept()
    await asyncio.sleep(1)
    assert state(w) == (2, 1, 0)


@in_virtual_time
async def test_append_after_lost_leadership_returns_not_controller() -> None:
    w = World(unclean_recovery_strategy="None")
    w.unfence(1, 3)
    waiting = asyncio.ensure_future(w.elect(2))
    await asyncio.sleep(0)
    w.quorum._leader = (7, 2)
    assert (await waiting).error_code == ErrorCode.NOT_CONTROLLER
    assert not w.controller.is_active


@pytest.mark.parametrize("leads_again", [False, True])
@in_virtual_time
async def test_a_controller_that_falls_between_append_and_commit(leads_again: bool) -> None:
    """M18: an election that the next controller's log may lack is not reported as done."""
    w = World(unclean_recovery_strategy="None")
    w.unfence(1, 3)
    w.quorum.commit_at_once = False
    waiting = asyncio.ensure_future(w.elect(2))
    await asyncio.sleep(1)
    assert (w.leader, waiting.done()) == (3, False)
    w.quorum.follow(7, 2)
    w.quorum.truncate()
    if leads_again:
        w.quorum.become_leader(3)
        assert w.leader == -1
    assert (await waiting).error_code == ErrorCode.NOT_CONTROLLER


@in_virtual_time
async def test_an_election_that_is_not_committed_in_time() -> None:
    w = World(unclean_recovery_strategy="None")
    w.unfence(1, 3)
    w.quorum.commit_at_once = False
    code, message = outcome(await w.elect(2, timeout_ms=2_000))
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert message == "it was decided, but not committed in time: it may be later"
    w.quorum.commit()
    assert w.leader == 3
    assert outcome(await w.elect(2)) == (ErrorCode.ELECTION_NOT_NEEDED, "has one")


@in_virtual_time
async def test_an_operators_time_is_over() -> None:
    w = World(unclean_recovery_strategy="None")
    w.unfence(1)
    started = asyncio.get_running_loop().time()
    code, message = outcome(await w.elect(3, timeout_ms=2_000))
    assert asyncio.get_running_loop().time() - started == pytest.approx(2.0)
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert message == "brokers 2, 3 may have everything, and are waited for"
    w.unfence(2, 3)
    await asyncio.sleep(10)
    assert (w.leader, w.asked) == (-1, [1])


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 2**31 - 1])
@in_virtual_time
async def test_extreme_times_of_operators(timeout_ms: int) -> None:
    """A request whose timeout has already expired elects nothing; the longest timeout is weeks."""
    w = World(unclean_recovery_strategy="None")
    w.unfence(1)
    waiting = asyncio.ensure_future(w.elect(3, timeout_ms=timeout_ms))
    await asyncio.sleep(60)
    assert waiting.done() is (timeout_ms <= 0)
    w.unfence(2, 3)
    await asyncio.sleep(10)
    code, _ = outcome(await waiting)
    if timeout_ms > 0:
        assert (code, w.leader) == (ErrorCode.NONE, 2)
    else:
        assert (code, w.leader) == (ErrorCode.REQUEST_TIMED_OUT, -1)


@pytest.mark.parametrize("kind", [0, 1, 4])
@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31 - 1])
@in_virtual_time
async def test_immediate_decision_ignores_timeout(kind: int, timeout_ms: int) -> None:
    """A decision that is not committed within the timeout is not reported as an election."""
    w = World(unclean_recovery_strategy="None")
    w.unfence(1)
    code, _ = outcome(await w.elect(kind, timeout_ms, desired_leaders=[1]))
    preferred = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert code == (preferred if kind == 0 else ErrorCode.NONE)
    if kind == 0:
        w.quorum.commit_at_once = False
        late = asyncio.ensure_future(w.elect(1, timeout_ms))
        await asyncio.sleep(60)
        assert late.done() is (timeout_ms <= 0)
        w.quorum.commit()
        assert (await late).error_code == (
            ErrorCode.NONE if timeout_ms > 0 else ErrorCode.REQUEST_TIMED_OUT
        )
    assert w.failures == []


@in_virtual_time
async def test_an_operator_who_goes_away_elects_nothing() -> None:
    w = World(unclean_recovery_strategy="None")
    peer = Peer()
    waiting = asyncio.ensure_future(w.elect(2, peer=peer))
    await asyncio.sleep(1)
    peer.close("gone")
    await asyncio.sleep(1)
    assert waiting.cancelled()
    w.unfence(1)
    await asyncio.sleep(10)
    assert (w.leader, w.asked) == (-1, [])


@in_virtual_time
async def test_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elections decided at once are reported even if the limit of waiting requests is reached."""
    monkeypatch.setattr("controller.writer.recovery.REQUESTS_MAX", 1)
    w = World(unclean_recovery_strategy="None")
    clean = PartitionRecord(
        partition_id=1, topic_id=TOPIC, replicas=[1], isr=[1], leader=-1, leader_epoch=4
    )
    w.write(clean)
    waiting = asyncio.ensure_future(w.elect(2))
    await asyncio.sleep(1)
    w.unfence(1)
    response = await w.elect(2, partitions=[0, 1])
    ((refused, elected),) = (topic.partition_result for topic in response.replica_election_results)
    assert response.error_code == 0
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert refused.error_message == "limit of 1 waiting election requests reached"
    assert elected.error_code == ErrorCode.NONE
    waiting.cancel()


@in_virtual_time
async def test_designation_and_refusals() -> None:
    w = World(unclean_recovery_strategy="None")
    w.unfence(1, 2)
    code, message = outcome(await w.elect(4, desired_leaders=[3]))
    assert (code, message) == (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "broker 3 is fenced")
    refused = await w.elect(4)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert outcome(await w.elect(4, desired_leaders=[1])) == (ErrorCode.NONE, None)
    assert w.leader == 1
    unknown = await w.elect(5)
    assert unknown.error_code == ErrorCode.INVALID_REQUEST
