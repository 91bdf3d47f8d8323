"""The exchange machine alone: framing of whole, split and pipelined requests; ordered replies;
holds.

Its rules are B4 and B46 of the bad-input catalogue.
"""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from protocol.errors import ProtocolError
from protocol.transport.exchange import (
    CLOSED,
    DRAINING,
    FIRST_REQUEST_BYTES_MAX,
    INFLIGHT,
    MUTED,
    NOT_ADMITTED,
    REPLIES_TOGETHER_BYTES,
    REQUESTS_PER_TURN,
    TURN_OVER,
    WRITE_PAUSED,
    Exchange,
    Place,
)
from protocol.transport.memory import RequestMemory
from protocol.transport.receive_buffer import BYTES_FIRST, BufferSpace
from testkit.memory.sockets import framed

USUAL_BYTES = 4096
SIZE_MAX = 100_000


class Owner:
    """The owner of the machine."""

    def __init__(self) -> None:
        self.fed = 0
        self.closed: str | None = None

    def feed(self) -> None:
        self.fed += 1

    def close(self, reason: str) -> None:
        self.closed = reason


class Machine:
    """An exchange driven as a connection drives it; requests are copied on arrival."""

    def __init__(self, *, inflight: int = 5, memory: RequestMemory | None = None) -> None:
        self.space = BufferSpace(memory or RequestMemory(), USUAL_BYTES)
        self.exchange: Exchange[Place] = Exchange(self.space, SIZE_MAX, inflight)
        self.exchange.release(NOT_ADMITTED)
        self.owner = Owner()
        self.requests: list[bytes] = []
        self.turns_over = 0

    def serve(self) -> None:
        for request in self.exchange.requests():
            self.requests.append(bytes(request))
            self.served(len(self.requests) - 1)
        self.turns_over += self.exchange.end_turn(self.owner, 0.0)

    def served(self, number: int) -> None:
        """A stand-in for the handling of a request."""

    def receive(self, data: bytes) -> int:
        """Receive as much as there is room for, as one read. Returns: the number of bytes."""
        room = self.exchange.buffer.room(0)
        taken = min(len(room), len(data))
        room[:taken] = data[:taken]
        room.release()
        self.exchange.buffer.received(taken)
        self.serve()
        return taken

    def feed(self, data: bytes, step: int | None = None) -> None:
        while data:
            taken = self.receive(data[:step])
            assert taken > 0, "no room for what arrives"
            data = data[taken:]

    def out(self) -> bytes:
        return b"".join(self.exchange.take())


STREAMS = {
    "empty": [b""],
    "one": [b"request"],
    "several": [b"one", b"", b"three", b"x" * 250],
    "one larger than the usual buffer": [b"y" * 3 * USUAL_BYTES],
    "sizes around the buffers'": [b"z" * (size - 4) for size in (511, 512, 513, 4095, 4096, 4097)],
    "large, then small": [b"l" * 20_000, b"s", b"l" * 9_000, b"s" * 20],
}


@pytest.fixture(params=STREAMS, ids=lambda name: name.replace(" ", "-"))
def bodies(request: pytest.FixtureRequest) -> list[bytes]:
    return STREAMS[request.param]


def stream(bodies: list[bytes]) -> bytes:
    return b"".join(map(framed, bodies))


# --- framing -----------------------------------------------------------------------------------


def test_whole(bodies: list[bytes]) -> None:
    machine = Machine()
    machine.feed(stream(bodies))
    assert machine.requests == bodies
    assert machine.exchange.buffer.own_bytes == 0 == machine.space.memory.used_bytes


def test_byte_by_byte(bodies: list[bytes]) -> None:
    machine = Machine()
    data = stream(bodies)
    ends = [len(stream(bodies[: n + 1])) for n in range(len(bodies))]
    for at, byte in enumerate(data, start=1):
        machine.feed(bytes((byte,)))
        assert len(machine.requests) == sum(end <= at for end in ends)
    assert machine.requests == bodies
    assert machine.space.memory.used_bytes == 0


def test_cut_off(bodies: list[bytes]) -> None:
    data = stream(bodies)
    for cut in {1, 2, 3, 4, 5, len(data) // 2, len(data) - 1} & set(range(1, len(data))):
        machine = Machine()
        machine.feed(data[:cut])
        assert machine.requests == bodies[: len(machine.requests)] != bodies
        machine.feed(data[cut:])
        assert machine.requests == bodies


def test_others_behind(bodies: list[bytes]) -> None:
    machine = Machine()
    behind = framed(b"next")
    machine.feed(stream(bodies) + behind[:-1])
    assert machine.requests == bodies
    assert machine.exchange.buffer.own_bytes > 0
    machine.feed(behind[-1:])
    assert machine.requests == [*bodies, b"next"]
    assert machine.space.memory.used_bytes == 0


def test_requests_are_slices_of_the_buffer() -> None:
    machine = Machine()
    room = machine.exchange.buffer.room(0)
    room[:7] = framed(b"abc")
    machine.exchange.buffer.received(7)
    (request,) = machine.exchange.requests()
    assert request.obj is machine.space.shared.obj


@pytest.mark.parametrize("size", [-1, -(2**31), SIZE_MAX + 1, 2**31 - 1])
def test_b02_a_length_that_cannot_be(size: int) -> None:
    machine = Machine()
    with pytest.raises(ProtocolError, match="size of a request"):
        machine.feed(framed(b"fine") + size.to_bytes(4, "big", signed=True))
    assert machine.requests == [b"fine"]


def test_b04_an_announced_length_takes_no_memory() -> None:
    machine = Machine()
    machine.feed(SIZE_MAX.to_bytes(4, "big") + b"0123456789")
    assert machine.space.memory.used_bytes == BYTES_FIRST


# --- replies -----------------------------------------------------------------------------------


def send_ready(exchange: Exchange[Place]) -> None:
    while (place := exchange.next_ready()) is not None:
        exchange.send(place.size, place.parts)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_replies_leave_in_the_order_of_their_requests(order: tuple[int, ...]) -> None:
    exchange = Machine().exchange
    places = [Place() for _ in order]
    for place in places:
        exchange.enqueue(place)
    sent = b""
    for number in order:
        place = places[number]
        place.size, place.parts, place.ready = 1, [str(number).encode()], True
        send_ready(exchange)
        sent += b"".join(exchange.take())
        waiting = next((n for n in range(4) if not places[n].ready), 4)
        assert sent == b"0123"[:waiting]
        assert len(exchange.waiting) == 4 - waiting


def test_a_reply_without_bytes_holds_its_place() -> None:
    exchange = Machine().exchange
    none, some = Place(), Place()
    exchange.enqueue(none)
    exchange.enqueue(some)
    some.size, some.parts, some.ready = 4, [b"some"], True
    assert exchange.next_ready() is None
    none.ready = True
    send_ready(exchange)
    assert b"".join(exchange.take()) == b"some"


def test_small_replies_are_one_piece_and_large_ones_are_not_copied() -> None:
    exchange = Machine().exchange
    for part in (b"a", b"b", b"c"):
        exchange.send(1, [part])
    assert exchange.out_bytes == 3
    assert exchange.take() == [b"abc"]
    assert (exchange.take(), exchange.out_bytes) == ([], 0)
    large = bytearray(REPLIES_TOGETHER_BYTES)
    exchange.send(1, [b"a"])
    exchange.send(len(large), [large])
    parts = exchange.take()
    assert parts[0] == b"a" and parts[1] is large


def test_exchange_limits_the_requests_in_flight() -> None:
    class Promising(Machine):
        def served(self, number: int) -> None:
            self.exchange.enqueue(Place())

    machine = Promising(inflight=3)
    machine.feed(stream([b"%d" % n for n in range(10)]))
    for answered in range(10):
        assert len(machine.requests) == min(answered + 3, 10)
        assert (machine.exchange.holds == INFLIGHT) is (answered <= 7)
        machine.exchange.waiting[0].ready = True
        send_ready(machine.exchange)
        assert machine.exchange.holds == 0
        machine.serve()
    assert machine.requests == [b"%d" % n for n in range(10)]


# --- holds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [NOT_ADMITTED, WRITE_PAUSED, TURN_OVER, DRAINING])
def test_no_request_is_cut_while_held(reason: int) -> None:
    machine = Machine()
    machine.exchange.hold(reason)
    machine.feed(framed(b"a") + framed(b"b"))
    assert machine.requests == [] and not machine.exchange.readable
    machine.exchange.release(reason)
    assert machine.exchange.readable
    machine.serve()
    assert machine.requests == [b"a", b"b"]


def test_a_hold_ends_the_turn() -> None:
    class Muting(Machine):
        def served(self, number: int) -> None:
            self.exchange.mute()

    machine = Muting()
    machine.feed(framed(b"a") + framed(b"b"))
    assert machine.requests == [b"a"]
    machine.serve()
    assert machine.requests == [b"a"]


def test_muted_until_the_last_reason_is_over() -> None:
    machine = Machine()
    machine.exchange.mute()
    machine.exchange.mute()
    machine.feed(framed(b"a"))
    machine.exchange.unmute()
    machine.serve()
    assert machine.requests == [] and machine.exchange.holds == MUTED and machine.exchange.is_busy
    machine.exchange.unmute()
    machine.serve()
    assert machine.requests == [b"a"] and machine.exchange.readable
    assert not machine.exchange.is_busy


def test_b46_what_is_held_back_stays_within_one_buffer() -> None:
    """B46: held bytes are neither framed nor given more room; later bytes stay in the kernel."""
    machine = Machine()
    machine.receive(framed(b"x" * 1000)[:500])
    own = machine.exchange.buffer.own_bytes
    machine.exchange.mute()
    room = len(machine.exchange.buffer.room(0))
    data = framed(b"x" * 1000)[500:] + stream([b"y"] * 10_000)
    assert machine.receive(data) == room
    assert machine.exchange.buffer.own_bytes == own
    assert len(machine.exchange.buffer.room(0)) == 0
    machine.exchange.unmute()
    machine.serve()
    machine.feed(data[room:][:100])
    assert machine.requests[0] == b"x" * 1000


def test_exchange_ends_a_turn_once_at_its_request_limit() -> None:
    machine = Machine()
    requests = [b"%d" % n for n in range(2 * REQUESTS_PER_TURN)]
    machine.receive(stream(requests))
    assert machine.requests == requests[:REQUESTS_PER_TURN]
    assert machine.turns_over == 1 and machine.exchange.holds == TURN_OVER
    machine.serve()
    assert machine.turns_over == 1, "it is over already"
    machine.exchange.release(TURN_OVER)
    machine.serve()
    assert machine.requests == requests
    assert machine.turns_over == 1 and machine.exchange.holds == 0, "nothing was left"


# --- memory and the end ------------------------------------------------------------------------


def test_a_request_waits_for_memory() -> None:
    memory = RequestMemory(1_000)
    holder, machine = Machine(memory=memory), Machine(memory=memory)
    request = framed(b"x" * 30_000)
    holder.feed(request[:20_000])
    taken = 0
    while machine.exchange.readable:
        taken += machine.receive(request[taken:20_000])
    assert machine.exchange.buffer.starving and machine.exchange.is_busy
    assert taken == machine.exchange.buffer.own_bytes < 20_000
    holder.feed(request[20_000:])
    assert holder.requests == [b"x" * 30_000]
    assert machine.owner.fed == 1
    machine.exchange.feed(machine.owner, 0.0)
    assert machine.exchange.readable
    machine.feed(request[taken:])
    assert machine.requests == holder.requests
    assert memory.used_bytes == 0


def test_a_closed_machine_cuts_nothing_and_keeps_nothing() -> None:
    machine = Machine()
    machine.feed(framed(b"half")[:-1])
    machine.exchange.hold(CLOSED)
    machine.feed(b"f" + framed(b"more"))
    assert machine.requests == []
    assert machine.space.memory.used_bytes == 0 == machine.exchange.buffer.own_bytes


def test_the_end_gives_everything_back() -> None:
    machine = Machine()
    machine.feed(framed(b"x" * 3_000)[:-1])
    machine.exchange.enqueue(Place())
    machine.exchange.send(1, [b"x"])
    assert machine.space.memory.used_bytes > 0
    machine.exchange.end(machine.owner, 0.0)
    assert machine.space.memory.used_bytes == 0
    assert not machine.exchange.waiting and not machine.exchange.out
    assert not machine.exchange.is_busy


# --- all of it ---------------------------------------------------------------------------------


class Story(Machine):
    """Random requests: answered at once, later or never, or with a mute."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(inflight=rng.randint(1, 6))
        self.rng = rng
        self.inflight_max = self.exchange._max_inflight
        self.expected = b""
        self.sent = b""

    def served(self, number: int) -> None:
        exchange, rng = self.exchange, self.rng
        assert len(exchange.waiting) < self.inflight_max, "served over the limit"
        assert not exchange.holds
        reply = b"<%d>" % number if rng.random() < 0.9 else b""
        self.expected += reply
        if rng.random() < 0.1:
            exchange.mute()
        if rng.random() < 0.4 and not exchange.waiting:
            exchange.send(len(reply), [reply] if reply else [])
            return
        place = Place()
        place.size, place.parts = len(reply), [reply] if reply else []
        place.ready = rng.random() < 0.2
        exchange.enqueue(place)

    def advance(self) -> None:
        exchange, rng = self.exchange, self.rng
        if exchange.waiting and rng.random() < 0.7:
            rng.choice(exchange.waiting).ready = True
        if exchange.holds & MUTED and rng.random() < 0.5:
            exchange.unmute()
        exchange.release(TURN_OVER)
        send_ready(exchange)
        if rng.random() < 0.5:
            self.sent += self.out()
        self.serve()


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_requests_and_replies_keep_their_order(seed: int) -> None:
    rng = random.Random(seed)
    story = Story(rng)
    requests = [bytes(rng.choice((0, 3, 40, 700, 5_000))) for _ in range(rng.randint(1, 90))]
    data = stream(requests)
    while data or len(story.requests) < len(requests) or story.exchange.waiting:
        if data and story.exchange.readable:
            data = data[story.receive(data[: rng.choice((1, 7, 100, 3_000, 10_000))]) :]
        story.advance()
    story.sent += story.out()
    assert story.requests == requests
    assert story.sent == story.expected
    assert story.space.memory.used_bytes == 0


def test_first_request_of_a_connection_is_small() -> None:
    """Without a request that could be read, no more than 512 KiB are taken."""
    for first, size, is_refused in (
        (False, FIRST_REQUEST_BYTES_MAX, False),
        (False, FIRST_REQUEST_BYTES_MAX + 1, True),
        (True, FIRST_REQUEST_BYTES_MAX + 1, False),
        (True, 2_000_001, True),
    ):
        exchange: Exchange[Place] = Exchange(
            BufferSpace(RequestMemory(), USUAL_BYTES), 2_000_000, 5
        )
        exchange.release(NOT_ADMITTED)
        data = (framed(b"request") if first else b"") + size.to_bytes(4, "big")
        exchange.buffer.room(0)[: len(data)] = data
        exchange.buffer.received(len(data))
        if is_refused:
            with pytest.raises(ProtocolError, match="size of a request"):
                list(exchange.requests())
        else:
            assert len(list(exchange.requests())) == first


def test_detached_buffer_leaves_what_is_behind_its_frame() -> None:
    """The frame of a large request stays in its buffer while others are received."""
    machine = Machine()
    buffer, memory = machine.exchange.buffer, machine.exchange.buffer.memory
    kept: list[tuple[memoryview, int]] = []

    def detach(number: int) -> None:
        if number == 0:
            view = buffer.view
            kept.append((view[buffer.start - SIZE_MAX : buffer.start], buffer.detach()))

    machine.served = detach  # type: ignore[method-assign]
    machine.feed(framed(b"x" * SIZE_MAX) + framed(b"next") + framed(b"cut")[:-1])
    frame, charged = kept[0]
    machine.feed(b"t" + framed(b"y" * SIZE_MAX))
    assert bytes(frame) == b"x" * SIZE_MAX
    assert machine.requests[1:3] == [b"next", b"cut"]
    assert memory.used_bytes == charged >= SIZE_MAX
