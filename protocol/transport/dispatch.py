"""Dispatch of request frames to handlers and encoding of their replies, without I/O.

A `HandlerTable` contains the APIs that a listener serves. Each API has one registered handler with
the range of versions that it implements. The response to ApiVersions is computed from these
entries, so that a listener cannot advertise an API without a handler. A handler is

- a plain function, called inline. It returns a `Reply`: the response, None if the request has no
  response (acks=0), or a future or coroutine of either. `records` fields of the request are slices
  of the receive buffer: the handler copies the bytes that it keeps before it returns.
- a coroutine function; it works on a copy of the frame.

Only `request_flow.py` turns coroutines into supervised tasks; a future needs none.

Invalid requests have Kafka's results (EdgeCaseRequestTest). An unreadable request, an API that the
listener does not serve, or a version outside its range closes the connection without a response.
The exception is an unknown version of ApiVersions: its response has version 0 and contains the
supported range (KIP-511), so that clients can choose another. An `ApiError` of a handler becomes a
response if the response has a top-level error code; otherwise the connection is closed.

Some versions and APIs exist only for Kraftbox's own nodes and tools: see `own_max_version`, `own`
and `own_only` of `register`. The table's `own_kind` recognises these peers by their software name
in ApiVersions. Other peers do not see these versions in ApiVersions and cannot use them. This
serves compatibility, not security: every client can claim such a name. A broker has checked a
request before it forwards it in an Envelope, so that the request may use all versions here.

The API key and version are read first (`peek`, `HandlerTable.find`), because the layout of the
other header fields depends on them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeGuard

from protocol.api_keys import ApiKey
from protocol.codec import encode_parts
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.headers import FIRST_FLEXIBLE_VERSION, response_header_version
from protocol.messages import request_class, response_class
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.schema import ApiMessage, Buffer, Request, Response, VersionRange, parse_versions
from protocol.transport.error_codes import CountErrors, count_errors
from protocol.transport.node_identity import NO_NODE, NodeIdentity
from protocol.transport.own_names import EVERY_KIND, OWN_BY_NAME, Own
from protocol.transport.stats import ApiStats

if TYPE_CHECKING:
    import asyncio

PEEK = struct.Struct(">hhi")
"""The first fields of every request header: API key, version, correlation id."""
_frame_and_id = struct.Struct(">ii")
_int32 = struct.Struct(">i")
_PLAIN_PREFIX = bytes(8)

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")

ANONYMOUS = "User:ANONYMOUS"


class CloseConnection(Exception):
    """A request to close the connection without a response; the text is the reason for the log."""


class EncodedReply:
    """A response body that is encoded for the request's version, in parts."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self.parts = parts


class FramedReply(EncodedReply):
    """A complete response frame, except for its correlation id."""

    __slots__ = ()

    def __init__(self, frame: bytearray) -> None:
        """`frame` begins with its length and four free bytes for the correlation id."""
        self.parts = (frame,)


class Connection(Protocol):
    """A handler's view of the connection of a request."""

    @property
    def id(self) -> int: ...
    @property
    def listener(self) -> str: ...
    @property
    def peer_host(self) -> str: ...
    @property
    def peer_port(self) -> int: ...

    @property
    def closed_by_peer(self) -> bool:
        """True if the connection has ended, and this side did not close it."""
        ...

    client_id: str | None
    software_name: str
    software_version: str
    asked_epochs_ms: float
    """Monotonic time of a consumer's last OffsetForLeaderEpoch request on this connection."""

    def add_close_callback(self, fn: Callable[[], None]) -> None:
        """Call `fn` once when the connection has ended; at once if it already has."""

    def remove_close_callback(self, fn: Callable[[], None]) -> None:
        """Do not call `fn` when the connection ends; an unknown callback is ignored."""

    def add_behind_callback(self, fn: Callable[[], None]) -> None:
        """Call `fn` whenever a reply is ready and an earlier request's reply is not.

        A request that only waits for more data, such as a Fetch, may then end its wait.
        """

    def remove_behind_callback(self, fn: Callable[[], None]) -> None:
        """Do not call `fn` any more; an unknown callback is ignored."""

    def close(self, reason: str) -> None: ...

    def mute(self, wait_ms: float) -> None:
        """Do not read the connection for `wait_ms`."""

    def hold_until(self, done: asyncio.Future[Any]) -> None:
        """Serve no further request of the connection before `done` ends."""

    def keep(self, size_bytes: int, until: asyncio.Future[Any]) -> None:
        """Count bytes of a request that a handler keeps as request memory until `until` ends."""


@dataclass(slots=True)
class RequestContext:
    """The origin of a request.

    `received_ms` is monotonic. `request_bytes` is the size of the frame, 0 for a request without a
    frame of its own.
    """

    connection: Connection
    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    received_ms: float
    principal: str
    client_host: str
    listener: str
    request_bytes: int = 0


Body: TypeAlias = ApiMessage | EncodedReply | None
"""The body of a response; None if the request has no response."""
Reply: TypeAlias = Body | Awaitable[Body]
"""The result of a handler: a body, or a future or coroutine of one."""
Handler: TypeAlias = Callable[[RequestContext, Any], Reply]


class Passage(Protocol):
    """One request's state in one stage."""

    def handled(self, *, promised: bool) -> None:
        """Note that the handler has returned a body, or with `promised` an awaitable of one."""

    def reply(self, body: Body) -> Body:
        """Return the body to send in place of the handler's `body`."""
        ...


class Stage(Protocol):
    """A step that all requests of a table pass: it may count them, and inspect or change replies.

    The order of calls for a request: each stage's `enter`, the handler, each passage's `handled`,
    and once the body exists, each passage's `reply`. If the handler fails, no further method is
    called.
    """

    def enter(self, entry: Entry, context: RequestContext, request: Any) -> Passage: ...


class Features(NamedTuple):
    """The features in an ApiVersions response (KIP-584), as (name, min, max).

    `finalized_epoch` is the epoch of the finalized features, -1 without one.
    """

    supported: Sequence[tuple[str, int, int]] = ()
    finalized: Sequence[tuple[str, int, int]] = ()
    finalized_epoch: int = -1


class Entry:
    """One served API: its handler, versions, message classes and counters."""

    __slots__ = (
        "advertised_from",
        "api",
        "count_errors",
        "first_flexible",
        "handler",
        "is_async",
        "kind_of",
        "kinds",
        "own",
        "own_version_max",
        "prefixes",
        "request",
        "response",
        "stats",
        "version_max",
        "version_min",
    )

    def __init__(
        self,
        api: ApiKey,
        handler: Handler,
        served: VersionRange,
        advertised_from: int,
        own_version_max: int,
        own: Own,
    ) -> None:
        """Create an entry.

        Args:
            served: the versions for every peer; empty if only own peers may use the API.
        """
        self.api = api
        self.handler = handler
        self.is_async = iscoroutinefunction(handler) or iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self.version_min, self.version_max = served
        self.own_version_max = own_version_max
        self.own = own
        self.first_flexible = FIRST_FLEXIBLE_VERSION.get(api, 0)
        self.advertised_from = advertised_from
        self.request: type[Request[Any]] = request_class(api)
        self.response: type[Response] = response_class(api)
        # Length and correlation id, filled in per reply, and the header's empty tags, if any.
        self.prefixes = [
            bytes(8) + bytes(response_header_version(api, version))
            for version in range(own_version_max + 1)
        ]
        name = "".join(word.capitalize() for word in api.name.split("_"))
        self.stats = ApiStats(name, own_version_max)
        self.kind_of: Callable[[Any], int] | None = None
        self.kinds: list[ApiStats] = []
        self.count_errors: CountErrors = self._count_first_errors
        """Function that calls its second argument with each error code of a response."""

    def _count_first_errors(self, message: ApiMessage, add: Callable[[int], None]) -> None:
        """Generate the function at the first response, and call it."""
        self.count_errors = count_errors(self.response)
        self.count_errors(message, add)

    def last_for(self, own: Own) -> int:
        """Return the last version that this peer may use; below `version_min` for no version."""
        # Few APIs have versions for own peers only, and the operators of flags are slow.
        apart = self.own is not Own.NOBODY and own & self.own
        return self.own_version_max if apart else self.version_max

    def count_apart(self, names: Sequence[str], kind_of: Callable[[Any], int]) -> None:
        """Count each kind of request under a name of its own, too.

        Args:
            names: one name for each kind.
            kind_of: maps a request to the index of its kind.
        """
        self.kinds = [ApiStats(name, self.own_version_max, self.stats.api_name) for name in names]
        self.kind_of = kind_of


def nobody(_: Connection) -> Own:
    """Return `Own.NOBODY` for every connection."""
    return Own.NOBODY


def own_peers(nodes_listener: str | None = None) -> Callable[[Connection], Own]:
    """Return a function that classifies a peer by its software name in ApiVersions.

    Brokers and controllers are recognised only on `nodes_listener`, or on each listener if it is
    None; tools on each listener.
    """

    def own_kind(connection: Connection) -> Own:
        own = OWN_BY_NAME.get(connection.software_name, Own.NOBODY)
        if own is Own.TOOL or nodes_listener is None or connection.listener == nodes_listener:
            return own
        return Own.NOBODY

    return own_kind


class HandlerTable:
    """The APIs of a listener.

    Args:
        unstable: serve versions that Kafka has not released.
        own_kind: classifies a peer; own nodes and tools may use private versions.
    """

    def __init__(
        self, *, unstable: bool = False, own_kind: Callable[[Connection], Own] = nobody
    ) -> None:
        self.entries: dict[int, Entry] = {}
        self.stages: tuple[Stage, ...] = ()
        self.unstable = unstable
        self.own_kind = own_kind

    def register(
        self,
        api: ApiKey,
        handler: Handler,
        *,
        min_version: int | None = None,
        max_version: int | None = None,
        own_max_version: int | None = None,
        own: Own = Own.BROKER,
        own_only: bool = False,
        unstable: bool = False,
        advertise_from: int | None = None,
    ) -> None:
        """Serve `api` in these versions; the default is all versions of the message.

        Unstable versions of the message are served only by a table with `unstable`.

        Args:
            own_max_version: versions above `max_version` up to this one, also unstable ones, are
                served to `own` peers only.
            own_only: serve the whole API to `own` peers only, including unstable versions.
            unstable: serve the whole API only in a table with `unstable`.
            advertise_from: advertise versions below `min_version`, too; they still close the
                connection.

        Raises:
            ValueError: the API has a handler, no version is left, or the message does not have the
                own versions.
        """
        if api in self.entries:
            raise ValueError(f"{api.name} has a handler already")
        request = request_class(api)
        first, last = request.VERSIONS
        if request.UNSTABLE and not (self.unstable or own_only):
            last = min(last, request.UNSTABLE.first - 1)
        low = first if min_version is None else max(min_version, first)
        high = last if max_version is None else min(max_version, last)
        if low > high:
            raise ValueError(f"{api.name} has no version from {low} to {high}")
        own_high = high if own_max_version is None else own_max_version
        if not high <= own_high <= request.VERSIONS.last:
            raise ValueError(
                f"{api.name}: own version {own_high} is not in {high}-{request.VERSIONS.last}"
            )
        if unstable and not self.unstable:
            return
        if own_only:
            high = low - 1
        shown_from = low if advertise_from is None else advertise_from
        served = VersionRange(low, high)
        self.entries[api] = Entry(api, handler, served, shown_from, own_high, own)

    def wrap(self, api: ApiKey, around: Callable[[Handler], Handler]) -> None:
        """Replace the registered handler of `api` by `around(handler)`."""
        self.entries[api].handler = around(self.entries[api].handler)

    def add_stage(self, stage: Stage) -> None:
        """Let requests pass `stage`, after the existing stages."""
        self.stages = (*self.stages, stage)

    def remove_stage(self, stage: Stage) -> None:
        """Remove `stage`; requests that have entered it still pass it."""
        self.stages = tuple(each for each in self.stages if each is not stage)

    def serve_api_versions(
        self,
        features: Callable[[], Features] = Features,
        identity: NodeIdentity | None = None,
    ) -> None:
        """Serve ApiVersions from this table.

        Args:
            features: called for each response.
            identity: compared with the cluster and node that a client expects (KIP-1242). Without
                it nothing is compared; controllers pass none, as in Kafka.
        """

        def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
            expected = NodeIdentity(request.cluster_id, request.node_id)
            if (expected.cluster_id is None) is not (expected.node_id == NO_NODE):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            if context.api_version >= 3:
                name, version = request.client_software_name, request.client_software_version
                if not (SOFTWARE_NAME.fullmatch(name) and SOFTWARE_NAME.fullmatch(version)):
                    return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            if expected.cluster_id is not None and identity not in (None, expected):
                return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
            if context.api_version >= 3:
                context.connection.software_name = name
                context.connection.software_version = version
            own = self.own_kind(context.connection)
            return self.api_versions_response(context.api_version, features(), own=own)

        self.register(ApiKey.API_VERSIONS, handle)

    def api_versions_response(
        self, api_version: int, features: Features | None = None, *, own: Own = Own.NOBODY
    ) -> ApiVersionsResponse:
        """Return the ApiVersions response for a peer of kind `own`, for this version of the API."""
        facts = features or Features()
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=key, min_version=entry.advertised_from, max_version=last
                )
                for key, entry in sorted(self.entries.items())
                if entry.version_min <= (last := entry.last_for(own))
            ],
            supported_features=[
                ApiVersionsResponse.SupportedFeatureKey(
                    name=name, min_version=low, max_version=high
                )
                for name, low, high in facts.supported
                # Older Java clients refuse a response with a minimum of 0 (KAFKA-17011).
                if low > 0 or api_version >= 4
            ],
            finalized_features_epoch=facts.finalized_epoch,
            finalized_features=[
                ApiVersionsResponse.FinalizedFeatureKey(
                    name=name, min_version_level=low, max_version_level=high
                )
                for name, low, high in facts.finalized
            ],
        )

    def stats(self) -> Iterable[ApiStats]:
        """Return the counters of every API, in the order of their keys."""
        entries = [self.entries[key] for key in sorted(self.entries)]
        return [stats for entry in entries for stats in (entry.stats, *entry.kinds)]

    def find(
        self, api_key: int, api_version: int, connection: Connection | None = None
    ) -> Entry | None:
        """Return the entry that serves this API and version to the peer of `connection`.

        Args:
            connection: None means a peer that is not an own node or tool.

        Returns:
            None for an unknown version of ApiVersions; `unknown_api_versions` is its response.

        Raises:
            CloseConnection: the API or version is not served.
        """
        entry = self.entries.get(api_key)
        if entry is not None and entry.version_min <= api_version <= entry.version_max:
            return entry
        own = Own.NOBODY if connection is None else self.own_kind(connection)
        return self._find_own(api_key, api_version, own)

    def find_embedded(self, api_key: int, api_version: int, connection: Connection) -> Entry | None:
        """Return the entry for a forwarded request, like `find`.

        An own broker has checked the sender of the request, so that all versions are served to it.
        Other peers may forward only requests in public versions.
        """
        is_broker = Own.BROKER in self.own_kind(connection)
        return self._find_own(api_key, api_version, EVERY_KIND if is_broker else Own.NOBODY)

    def _find_own(self, api_key: int, api_version: int, own: Own) -> Entry | None:
        entry = self.entries.get(api_key)
        last = -1 if entry is None else entry.last_for(own)
        if entry is None or last < entry.version_min:
            raise CloseConnection(f"API {api_key} version {api_version} is not served here")
        if entry.version_min <= api_version <= last:
            return entry
        if api_key == ApiKey.API_VERSIONS:
            return None
        raise CloseConnection(
            f"{entry.api.name} version {api_version} is not in {entry.version_min}-{last}"
        )

    def unknown_api_versions(self) -> ApiVersionsResponse:
        """Return the response to an unknown version of ApiVersions; it is encoded in version 0."""
        entry = self.entries[ApiKey.API_VERSIONS]
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=ApiKey.API_VERSIONS,
                    min_version=entry.version_min,
                    max_version=entry.version_max,
                )
            ],
        )


def is_body(reply: Reply) -> TypeGuard[Body]:
    """Return whether a handler's reply is a body, not an awaitable."""
    return reply is None or isinstance(reply, (ApiMessage, EncodedReply))


def pass_through(
    stages: Sequence[Stage], entry: Entry, context: RequestContext, request: Any
) -> tuple[Reply, Sequence[Passage]]:
    """Call the handler between the hooks of the stages.

    Returns:
        (body, ()) if the handler replied at once, else (awaitable, passages): pass the awaited body
        to `leave`.
    """
    passages = [stage.enter(entry, context, request) for stage in stages]
    reply = entry.handler(context, request)
    promised = not is_body(reply)
    for passage in passages:
        passage.handled(promised=promised)
    return (leave(passages, reply), ()) if is_body(reply) else (reply, passages)


def leave(passages: Sequence[Passage], body: Body) -> Body:
    """Return the body to send, after the `reply` of each passage."""
    for passage in passages:
        body = passage.reply(body)
    return body


def peek(frame: Buffer) -> tuple[int, int, int]:
    """Return API key, version and correlation id of a request.

    Raises:
        ProtocolError: the frame is too short.
    """
    if len(frame) < PEEK.size:
        raise ProtocolError("request header cut short", len(frame), f"{PEEK.size} bytes")
    return PEEK.unpack_from(frame)


def reply_parts(
    body: ApiMessage | EncodedReply, entry: Entry | None, api_version: int, correlation_id: int
) -> tuple[int, list[Buffer]]:
    """Return the size and the parts of a complete response frame.

    Args:
        entry: None means ApiVersions in version 0.
    """
    parts: list[Buffer]
    if type(body) is FramedReply:
        frame = body.parts[0]
        _int32.pack_into(frame, 4, correlation_id)
        return len(frame), [frame]
    prefix = _PLAIN_PREFIX if entry is None else entry.prefixes[api_version]
    if type(body) is EncodedReply:
        parts = [bytearray(prefix), *body.parts]
    else:
        assert isinstance(body, ApiMessage)
        parts = encode_parts(body, api_version, prefix)
    first = parts[0]
    size = len(first) if len(parts) == 1 else sum(map(len, parts))
    assert type(first) is bytearray
    _frame_and_id.pack_into(first, 0, size - 4, correlation_id)
    return size, parts


def error_reply(entry: Entry, api_version: int, error: ApiError) -> Response:
    """Return the response with `error` as its top-level error.

    Raises:
        CloseConnection: the response has no top-level error code in this version.
    """
    values: dict[str, Any] = {}
    for name, value in (("error_code", int(error.code)), ("error_message", error.text)):
        if any(
            field.name == name and api_version in parse_versions(field.versions)
            for field in entry.response.FIELDS
        ):
            values[name] = value
    if "error_code" not in values:
        raise CloseConnection(f"{entry.api.name} version {api_version}: {error}")
    return entry.response(**values)
