"""Shell: Requests with long lists, served in parts, and long responses, encoded in steps.

A request of some megabytes may name a million topics. A handler that serves it at once blocks the
event loop for seconds: no heartbeat is sent, and no other client is served. Therefore each API with
a list has one of these rules, which applies before its handler:

- `InParts`: the request is split along its list (`protocol/parts.py`). The handler serves one part
  after the other, each a valid request of its own, and the responses are joined. The next request
  on the connection is served after the response to this one.
- `AtOnce`: the handler receives the whole request, and the list has a limit that it can serve.

Both refuse a request above `weight_max`, with INVALID_REQUEST if the response has a top-level error
code. Otherwise the connection is closed, as for an array that is longer than Kafka allows. Long
responses are encoded in steps. All parts and steps of a node share their slices (`SharedSlices`):
many long requests together block an event-loop iteration no longer than one.

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
from runtime.slices import SharedSlices

SHORT_BYTES: Final = 512
"""The lists of a frame up to this size are too short to be weighed."""
PART_WEIGHT: Final = 100
"""Weight of a part, which takes the slowest handlers a few milliseconds."""
WEIGHT_MAX: Final = 200_000
"""Limit of a request's weight: twice the partitions of a large cluster."""
ITEM_WEIGHT_MAX: Final = 10_000
"""Limit of an element's weight that cannot be split: Kafka's limit of records per operation."""
SHORT_REPLY_STRUCTS: Final = 1_000
"""A response with no more structs in its lists is not weighed."""
LONG_REPLY_WEIGHT: Final = 4_000
"""A response that weighs more is encoded in steps. A lighter one takes 2 ms at most in one step,
and twice as long in several."""
LONG_REQUEST_WEIGHT: Final = 1_000
"""A request that weighs more is compared with the bound of an API that serves it whole."""
PATIENCE_MS: Final = 60_000.0
"""No further part is begun after this time, if the request has no timeout of its own."""
TIMEOUT: Final = "timeout_ms"


Refuse: TypeAlias = Callable[[Any, ErrorCode, int], Response]
"""Returns the response with an error code for every element of a request, in a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """A rule for handlers that pause by themselves, or do next to nothing with an element.

    weight_max: limit of the request's weight.
    by_count: the limit counts only the elements of the outermost lists, which takes no time.
    """

    weight_max: int = ITEM_WEIGHT_MAX
    by_count: bool = False
    long_reply: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InParts:
    """A rule that splits a request.

    paths: the list fields that lead to the elements; of several paths, the first is used whose
        outermost list is not empty.
    key: returns the key of an outermost element. Elements with equal keys stay in one part, because
        the handler compares them, and at most two of them are served.
    part_max: limit of a part's weight.
    weight_max: limit of the request's weight.
    extra_depth: number of lists in the response around those of the request.
    whole: returns whether a request, by content and version, would mean something else in parts.
    whole_max: limit of the weight of such a request.
    load_of: returns the handler's work for an outermost element, if that exceeds its weight.
    load_max: above this load, every part is answered by `refuse` with POLICY_VIOLATION.
    refuse: returns such a response.
    long_reply: a reply that the handler returns as an awaitable may be long.
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
    """Applies the rules to the requests of handler tables."""

    def __init__(self, clock: Clock, slices: SharedSlices) -> None:
        """`slices` is shared with the handlers that pause by themselves."""
        self._clock = clock
        self._slices = slices

    def guard(self, table: HandlerTable, rules: Mapping[ApiKey, Rule]) -> None:
        """Apply its rule to each API of `table` that has one."""
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
                # A short request may list all objects of a node.
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
            # Parts are freed one by one, because freeing a long request at once takes long, too.
            parts.reverse()
            while parts:
                part = parts.pop()
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
        """Split the request before any part is served. Raises: ApiError if it is too long."""
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
        """Separate the elements that the request names more than once.

        Returns: the request without them, and two elements for each of their keys.
        """
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

    def _shorten(self, context: RequestContext, request: Any, part: Any) -> None:
        """Set the timeout of a part to the rest of the request's.

        Raises:
            ApiError: REQUEST_TIMED_OUT if the request has no timeout and `PATIENCE_MS` have passed.
        """
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
    """Encode a response in steps. The caller has awaited `slices.turn`."""
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
    """Return a handler that refuses every element with POLICY_VIOLATION."""
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
    """Return the response as a message; a forwarded response is decoded from its bytes."""
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
