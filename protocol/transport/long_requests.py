"""Shell: Requests with long lists, served in parts, and long responses, encoded in steps.

A request of some megabytes may name a million topics. A handler that answers them in one go holds
the event loop for seconds, in which no heartbeat is sent and no other client is served. So between
the transport and the handlers stands, for each API with a list, one of these rules:

- `InParts`: the request is cut along its list (`protocol/parts.py`). The handler serves one part
  after the other, each a request as any client could have sent it; the answers are joined. The
  connection is held in the meantime: the next request on it is served when this one is answered.
- `AtOnce`: the handler gets the request as it is, and the list has a bound that it can serve.

Both refuse what weighs more than `weight_max`: with INVALID_REQUEST where the response has an error
of its own, else the connection is closed, as for an array that is longer than Kafka allows. Long
responses are encoded in steps. All parts and steps of a node take turns (`SharedSlices`), so that
many long requests together hold an event-loop iteration no longer than one.

A short request costs a comparison.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from protocol.api_keys import ApiKey
from protocol.codec import decode
from protocol.decoding import FREED_AT_ONCE, free_in_steps
from protocol.errors import ApiError, ErrorCode
from protocol.parts import Part, Path, cut, failed, join
from protocol.schema import Buffer, Response, Struct
from protocol.sliced_encoding import encode_steps
from protocol.transport.dispatch import (
    Body,
    EncodedReply,
    Entry,
    Handler,
    HandlerTable,
    Reply,
    RequestContext,
    is_body,
)
from protocol.weights import length, struct_counter, weigh
from runtime.clock import Clock
from runtime.collector import spare
from runtime.slices import SharedSlices

SHORT_BYTES: Final = 512
"""A frame up to this size holds no list that is worth weighing."""
PART_WEIGHT: Final = 100
"""What is served at once; a few milliseconds of the slowest handlers."""
WEIGHT_MAX: Final = 200_000
"""What one request may weigh: twice the partitions of a large cluster."""
SPARED_WEIGHT: Final = 2_000
"""Responses to this much are kept out of collections, which otherwise visit them repeatedly."""
ITEM_WEIGHT_MAX: Final = 10_000
"""What one element may weigh that cannot be cut: Kafka's limit of records in one operation."""
SHORT_REPLY_STRUCTS: Final = 1_000
"""A response with no more structs in its lists is not weighed."""
LONG_REPLY_WEIGHT: Final = 4_000
"""A response that weighs more is encoded in steps. A lighter one takes 2 ms at most in one step,
and twice as long in several."""
LONG_REQUEST_WEIGHT: Final = 1_000
"""A request that weighs more is compared with the bound of an API that serves it whole."""
PATIENCE_MS: Final = 60_000.0
"""No further part is begun after this time where the request has no timeout of its own."""
TIMEOUT: Final = "timeout_ms"


Refuse: TypeAlias = Callable[[Any, ErrorCode, int], Response]
"""The response that says an error for all of a request, in a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """The handler pauses by itself, or what it does with an element is next to nothing.

    by_count: the bound counts the elements of the outermost lists alone, which takes no time.
    """

    weight_max: int = ITEM_WEIGHT_MAX
    by_count: bool = False
    long_reply: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InParts:
    """How a request is cut.

    paths: the list fields on the way to the elements; the first of several whose outermost list is
    not empty is taken. key: of an outermost element; elements with equal keys stay in one part,
    because the handler judges them together, and no more than two of them are served. part_max: the
    weight of a part. extra_depth: lists of the response around those of the request. whole: tells
    the requests, by content and version, that mean something else in parts; they weigh at most
    whole_max. load_of: of an
    outermost element, where its handler makes more of it than its weight. load_max: more than this
    is answered by `refuse`, part by part, with POLICY_VIOLATION. long_reply: a reply that the
    handler only promises may be long.
    """

    paths: tuple[Path, ...]
    key: Callable[[Any], Hashable] | None = None
    part_max: int = PART_WEIGHT
    weight_max: int = WEIGHT_MAX
    extra_depth: int = 0
    whole: Callable[[Any, int], bool] | None = None
    whole_max: int = ITEM_WEIGHT_MAX
    load_of: Callable[[Any], int] | None = None
    load_max: int | None = None
    refuse: Refuse | None = None
    long_reply: bool = False


Rule: TypeAlias = InParts | AtOnce


class LongRequests:
    """Puts rules between a table and its handlers."""

    def __init__(self, clock: Clock, slices: SharedSlices) -> None:
        """`slices` is shared with the handlers that pause by themselves."""
        self._clock = clock
        self._slices = slices
        self._unspared = 0

    def guard(self, table: HandlerTable, rules: Mapping[ApiKey, Rule]) -> None:
        """Serve every API of `table` that has a rule by it."""
        for api, rule in rules.items():
            entry = table.entries.get(api)
            if entry is not None:
                entry.handler = self._around(entry, entry.handler, rule)

    def _around(self, entry: Entry, handler: Handler, rule: Rule) -> Handler:
        is_long, short_bytes = _judge(rule)
        long_reply = rule.long_reply
        structs = struct_counter(entry.response)

        def handle(context: RequestContext, request: Any) -> Reply:
            size = context.request_bytes
            if (size > short_bytes or not size) and is_long(request):
                return self._long(entry, handler, rule, context, request)
            reply = handler(context, request)
            if isinstance(reply, Response):
                # A short request may list everything on a node.
                if structs(reply, SHORT_REPLY_STRUCTS) <= SHORT_REPLY_STRUCTS or (
                    weigh(reply, LONG_REPLY_WEIGHT) <= LONG_REPLY_WEIGHT
                ):
                    return reply
                return self._finish(entry, context, reply)
            return self._encoded(entry, context, reply) if long_reply else reply

        return handle

    # --- long requests -------------------------------------------------------------------------

    def _long(
        self, entry: Entry, handler: Handler, rule: Rule, context: RequestContext, request: Any
    ) -> Reply:
        if isinstance(rule, AtOnce) or (
            rule.whole is not None and rule.whole(request, context.api_version)
        ):
            weight_max = rule.weight_max if isinstance(rule, AtOnce) else rule.whole_max
            by_count = isinstance(rule, AtOnce) and rule.by_count
            weight = length(request) if by_count else weigh(request, weight_max)
            if weight > weight_max:
                raise _too_long(weight_max)
            return self._encoded(entry, context, handler(context, request))
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        context.connection.hold_until(served)
        return self._in_parts(entry, handler, rule, context, request, served)

    async def _in_parts(
        self,
        entry: Entry,
        handler: Handler,
        rule: InParts,
        context: RequestContext,
        request: Any,
        served: asyncio.Future[None],
    ) -> Body:
        try:
            if context.request_bytes:
                context.connection.keep(context.request_bytes, served)
            await self._slices.turn()
            path = _path(rule, request)
            depth = len(path) - 1 + rule.extra_depth
            whole: Response | None = None
            parts = await self._parts(rule, path, request)
            serve = handler
            if rule.load_max is not None and sum(part.load for part in parts) > rule.load_max:
                serve = _refusing(rule)
            # Parts go one by one: to free a long request at once takes long, too.
            parts.reverse()
            while parts:
                part = parts.pop()
                self._spare(part.weight)
                await self._slices.breathe(part.weight)
                self._shorten(context, request, part.request)
                reply = serve(context, part.request)
                if not is_body(reply):
                    reply = await cast("Awaitable[Body]", reply)
                    await self._slices.turn()
                response = _message(entry, context, reply)
                if response is None:
                    continue
                entry.count_errors(response, entry.stats.add_error)
                if failed(response):
                    return await encoded_in_slices(self._slices, response, context.api_version)
                if whole is None:
                    whole = response
                else:
                    join(whole, response, depth)
            if whole is None:
                return None
            held = [whole]
            del whole, response, reply
            return await _encoded_and_freed(self._slices, held, context.api_version)
        finally:
            if not served.done():
                served.set_result(None)

    async def _parts(self, rule: InParts, path: Path, request: Any) -> list[Part]:
        """Cut the request before anything of it is served. Raises ApiError if it is too long."""
        again: list[Any] = []
        if rule.key is not None:
            request, again = await self._apart(rule.key, path[0], request)
        parts: list[Part] = []
        weight = 0
        for part in cut(request, path, rule.part_max, rule.load_of):
            weight += part.weight
            if weight > rule.weight_max:
                raise _too_long(rule.weight_max)
            if part.weight > rule.part_max:
                self._check_item(part.request)
            parts.append(part)
            await self._slices.breathe(part.weight)
        for first in range(0, len(again), rule.part_max):
            items = again[first : first + rule.part_max]
            parts.append(Part(request.replace(**{path[0]: items}), len(items), len(items)))
        return parts

    def _check_item(self, request: Any) -> None:
        if weigh(request, ITEM_WEIGHT_MAX) > ITEM_WEIGHT_MAX:
            raise _too_long(ITEM_WEIGHT_MAX)

    async def _apart(
        self, key: Callable[[Any], Hashable], name: str, request: Any
    ) -> tuple[Any, list[Any]]:
        """The request without the elements that it names more than once, and two of each of
        these."""
        items = getattr(request, name) or ()
        first: dict[Hashable, Any] = {}
        again: dict[Hashable, Any] = {}
        for item in items:
            if isinstance(item, Struct):
                self._check_item(item)
            named = key(item)
            if named in first:
                again[named] = item
            else:
                first[named] = item
            await self._slices.breathe()
        if not again:
            return request, []
        pairs: list[Any] = []
        for named, item in again.items():
            pairs += (first.pop(named), item)
            await self._slices.breathe()
        return request.replace(**{name: list(first.values())}), pairs

    def _spare(self, weight: int) -> None:
        self._unspared += weight
        if self._unspared > SPARED_WEIGHT:
            self._unspared = 0
            spare()

    def _shorten(self, context: RequestContext, request: Any, part: Any) -> None:
        """Leave the part what is left of the request's time. Raises ApiError when a request without
        a timeout has had enough of it."""
        passed_ms = self._clock.monotonic_ms() - context.received_ms
        timeout_ms = getattr(request, TIMEOUT, None)
        if timeout_ms is None or timeout_ms <= 0:
            if passed_ms > PATIENCE_MS:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, None)
        else:
            part.timeout_ms = max(1, int(timeout_ms - passed_ms))

    # --- long responses ------------------------------------------------------------------------

    def _encoded(self, entry: Entry, context: RequestContext, reply: Reply) -> Reply:
        if reply is None or isinstance(reply, EncodedReply):
            return reply
        return self._finish(entry, context, reply)

    async def _finish(self, entry: Entry, context: RequestContext, reply: Reply) -> Body:
        body = reply if is_body(reply) else await cast("Awaitable[Body]", reply)
        if not isinstance(body, Response):
            return body
        await self._slices.turn()
        if weigh(body, LONG_REPLY_WEIGHT) <= LONG_REPLY_WEIGHT:
            return body
        entry.count_errors(body, entry.stats.add_error)
        held = [body]
        del body, reply
        return await _encoded_and_freed(self._slices, held, context.api_version)


async def encoded_in_slices(slices: SharedSlices, response: Response, version: int) -> EncodedReply:
    """Encode a response in steps. The caller has its turn of the slices."""
    parts: list[Buffer] = []
    for weight in encode_steps(response, version, parts):
        await slices.breathe(weight)
    return EncodedReply(parts)


async def _encoded_and_freed(
    slices: SharedSlices, held: list[Response], version: int
) -> EncodedReply:
    """Encode the response in `held` in steps, then free it in steps: all at once, the elements of
    100,000 topics take 15 ms. The caller refers to the response by `held` alone."""
    encoded = await encoded_in_slices(slices, held[0], version)
    for _ in free_in_steps(held.pop()):
        await slices.breathe(FREED_AT_ONCE)
    return encoded


def _judge(rule: Rule) -> tuple[Callable[[Any], bool], int]:
    """Return a function that recognizes long requests, and a size up to which none is long."""
    if isinstance(rule, InParts) and rule.load_of is not None:
        load_of, part_max, paths = rule.load_of, rule.part_max, rule.paths

        def is_load(request: Any) -> bool:
            if weigh(request, part_max) > part_max:
                return True
            return sum(map(load_of, getattr(request, paths[0][0]) or ())) > part_max

        return is_load, 0
    threshold = rule.part_max if isinstance(rule, InParts) else LONG_REQUEST_WEIGHT

    def is_long(request: Any) -> bool:
        return weigh(request, threshold) > threshold

    return is_long, SHORT_BYTES


def _refusing(rule: InParts) -> Handler:
    """A handler that refuses everything."""
    refuse = rule.refuse
    assert refuse is not None

    def handle(context: RequestContext, request: Any) -> Reply:
        return refuse(request, ErrorCode.POLICY_VIOLATION, context.api_version)

    return handle


def _path(rule: InParts, request: Any) -> Path:
    for path in rule.paths:
        if getattr(request, path[0]):
            return path
    return rule.paths[0]


def _message(entry: Entry, context: RequestContext, body: Body) -> Response | None:
    """The response as a message; what the controller answered comes as bytes."""
    if not isinstance(body, EncodedReply):
        assert body is None or isinstance(body, Response)
        return body
    response, _ = decode(entry.response, b"".join(body.parts), context.api_version)
    return response


def _too_long(weight_max: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        f"the request names too much: its lists weigh more than {weight_max} elements",
    )
