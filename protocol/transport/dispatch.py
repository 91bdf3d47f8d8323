"""From a frame to a handler and from its reply to bytes, without I/O.

A `HandlerTable` says which APIs a listener serves. Each API is one registered handler with the
range of versions it was written for, and the answer to ApiVersions is computed from exactly these
entries, so nothing can be advertised that is not there. A handler is

- a plain function, called inline. It returns a `Reply`: the response, or None when nothing is to be
  sent (acks=0), or the promise of either, a future or a coroutine. `records` fields of the request
  are slices of the receive buffer: what is to be kept must be copied before returning.
- a coroutine function; it works on a copy of the frame.

Coroutines become supervised tasks in one place, `request_flow.py`; a future needs none.

Reactions to bad requests are Kafka's (EdgeCaseRequestTest): what cannot be parsed, an API that this
listener does not serve, or a version outside the range closes the connection without an answer. The
exception is ApiVersions, which answers any version it does not know in version 0 and says which it
does (KIP-511), since that is how clients find out. An `ApiError` from a handler becomes a response
where the response has an error code of its own, else a close.

Versions and whole APIs may be there for our own nodes and tools alone: `own_max_version`, `own` and
`own_only` of `register`; the table's `own_kind` says who they are, by the names that they give
themselves in ApiVersions. To everybody else they do not exist, neither in ApiVersions nor in
requests. This is about compatibility, not safety: anybody may claim such a name. What one of our
brokers sends on in an Envelope it has let pass itself, so there it has the same right here.

The API key and version are looked at first (`peek`, `HandlerTable.find`): only a served version
says how the rest of the header is laid out.
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
"""What every request header begins with: API key, version, correlation id."""
_frame_and_id = struct.Struct(">ii")
_int32 = struct.Struct(">i")
_PLAIN_PREFIX = bytes(8)

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")

ANONYMOUS = "User:ANONYMOUS"


class CloseConnection(Exception):
    """Close this connection without an answer; the text says why, for the log."""


class EncodedReply:
    """A response body already encoded for the request's version, in parts; sent as it is."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self.parts = parts


class FramedReply(EncodedReply):
    """A response frame that needs nothing but its correlation id."""

    __slots__ = ()

    def __init__(self, frame: bytearray) -> None:
        """`frame` begins with its length, and has room for the correlation id behind it."""
        self.parts = (frame,)


class Connection(Protocol):
    """What a handler may know and do about the connection a request came from."""

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
        """The connection is gone, and not because this side closed it."""
        ...

    client_id: str | None
    software_name: str
    software_version: str
    asked_epochs_ms: float
    """When a consumer last asked here where leader epochs end, by the steady clock."""

    def add_close_callback(self, fn: Callable[[], None]) -> None:
        """Call `fn` once when the connection is gone; at once if it already is."""

    def remove_close_callback(self, fn: Callable[[], None]) -> None:
        """Forget `fn`; unknown ones are ignored."""

    def add_behind_callback(self, fn: Callable[[], None]) -> None:
        """Call `fn` whenever the reply to a request is ready and must wait for that of an earlier
        one: who waits for nothing in particular may end that here."""

    def remove_behind_callback(self, fn: Callable[[], None]) -> None:
        """Forget `fn`; unknown ones are ignored."""

    def close(self, reason: str) -> None: ...

    def mute(self, wait_ms: float) -> None:
        """Do not read the connection for so long; it is closed or served as before then."""

    def hold_until(self, done: asyncio.Future[Any]) -> None:
        """Serve no further request of the connection before `done` is."""

    def keep(self, size_bytes: int, until: asyncio.Future[Any]) -> None:
        """A handler keeps so many bytes of a request `until` then: they count as request memory."""


@dataclass(slots=True)
class RequestContext:
    """Where a request came from. `received_ms` is monotonic; `request_bytes` is the whole frame,
    0 for a request that did not come in a frame of its own."""

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
"""What is sent; nothing for None."""
Reply: TypeAlias = Body | Awaitable[Body]
"""What a handler returns: the body, or the promise of one, a future or a coroutine."""
Handler: TypeAlias = Callable[[RequestContext, Any], Reply]


class Passage(Protocol):
    """One request on its way through one stage."""

    def handled(self, *, promised: bool) -> None:
        """The handler has returned the body, or with `promised` that there will be one."""

    def reply(self, body: Body) -> Body:
        """What is sent where the handler said `body`."""
        ...


class Stage(Protocol):
    """What all requests of a table pass, whatever their handlers: it may count them, look at their
    replies or change these.

    The way of a request: each stage's `enter`, in order, the handler, each passage's `handled`, and
    once the body is there, now or later, each passage's `reply`. Of a request whose handler failed
    a stage hears no more.
    """

    def enter(self, entry: Entry, context: RequestContext, request: Any) -> Passage: ...


class Features(NamedTuple):
    """What ApiVersions says about features (KIP-584): (name, min, max) and (name, min, max) of the
    finalized ones with their epoch; -1 without one."""

    supported: Sequence[tuple[str, int, int]] = ()
    finalized: Sequence[tuple[str, int, int]] = ()
    finalized_epoch: int = -1


class Entry:
    """One served API: the handler, its versions, and the classes to read and write."""

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
        """`served` is what everybody may ask for: without versions where none is for everybody."""
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
        """Calls its second argument with each error code of a response."""

    def _count_first_errors(self, message: ApiMessage, add: Callable[[int], None]) -> None:
        """Generating the function waits for the first response."""
        self.count_errors = count_errors(self.response)
        self.count_errors(message, add)

    def last_for(self, own: Own) -> int:
        """The last version that this peer may ask for; below `version_min` if there is none."""
        # Few have versions for some peers alone, and flags are slow to combine.
        apart = self.own is not Own.NOBODY and own & self.own
        return self.own_version_max if apart else self.version_max

    def count_apart(self, names: Sequence[str], kind_of: Callable[[Any], int]) -> None:
        """Count kinds of requests apart, each under a name of its own as well as under the API's;
        `kind_of` gives the index of a request's kind."""
        self.kinds = [ApiStats(name, self.own_version_max, self.stats.api_name) for name in names]
        self.kind_of = kind_of


def nobody(_: Connection) -> Own:
    """No peer is one of our own."""
    return Own.NOBODY


def own_peers(nodes_listener: str | None = None) -> Callable[[Connection], Own]:
    """Who peers are by the name that they gave in ApiVersions; brokers and controllers at this
    listener only (None: at every one of the table's), tools at all of them."""

    def own_kind(connection: Connection) -> Own:
        own = OWN_BY_NAME.get(connection.software_name, Own.NOBODY)
        if own is Own.TOOL or nodes_listener is None or connection.listener == nodes_listener:
            return own
        return Own.NOBODY

    return own_kind


class HandlerTable:
    """The APIs of a listener. `unstable` offers versions that Kafka has not released; `own_kind`
    tells our own nodes and tools, who see what others do not."""

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
        """Serve `api` in these versions (default: all that the message has).

        Unstable versions of the message, and with `unstable` the whole API, exist only in a table
        that was made with `unstable`. `advertise_from` advertises versions below `min_version` too;
        they still close the connection. Versions above `max_version` up to `own_max_version`, also
        unstable ones, are there for `own` only; with `own_only` the whole API is, unstable versions
        too. Raises ValueError for a second handler, for no versions, or for own ones that the
        message does not have or everybody has.
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
        """Serve `api` with `around(handler)` in place of the handler that is registered."""
        self.entries[api].handler = around(self.entries[api].handler)

    def add_stage(self, stage: Stage) -> None:
        """Requests pass `stage` from now on, behind the stages that are there."""
        self.stages = (*self.stages, stage)

    def remove_stage(self, stage: Stage) -> None:
        """Requests pass `stage` no more; those that are in it still do."""
        self.stages = tuple(each for each in self.stages if each is not stage)

    def serve_api_versions(
        self,
        features: Callable[[], Features] = Features,
        identity: NodeIdentity | None = None,
    ) -> None:
        """Answer ApiVersions from this table.

        `features` is called for each response. `identity` is compared with the cluster and the node
        that a client expects (KIP-1242); controllers compare nothing, as in Kafka.
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
        """What this table serves to one of our `own` or to others, in the form that `api_version`
        of ApiVersions can say."""
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
                # Older Java clients refuse the whole answer over a minimum of 0 (KAFKA-17011).
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
        """The counters of every API, in the order of their keys."""
        entries = [self.entries[key] for key in sorted(self.entries)]
        return [stats for entry in entries for stats in (entry.stats, *entry.kinds)]

    def find(
        self, api_key: int, api_version: int, connection: Connection | None = None
    ) -> Entry | None:
        """The entry that serves this request to the peer of `connection` (None: to anybody); None
        for ApiVersions in a version that is not known, answered with `unknown_api_versions`.

        Raises CloseConnection for everything else that is not served.
        """
        entry = self.entries.get(api_key)
        if entry is not None and entry.version_min <= api_version <= entry.version_max:
            return entry
        own = Own.NOBODY if connection is None else self.own_kind(connection)
        return self._find_own(api_key, api_version, own)

    def find_embedded(self, api_key: int, api_version: int, connection: Connection) -> Entry | None:
        """As `find`, for a request that the peer sends on for somebody else. One of our brokers has
        looked at who that is; to others only what everybody sees is served."""
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
        """The answer, encoded in version 0, to a version of ApiVersions that is not known."""
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
    """Whether a handler's reply is there already."""
    return reply is None or isinstance(reply, (ApiMessage, EncodedReply))


def pass_through(
    stages: Sequence[Stage], entry: Entry, context: RequestContext, request: Any
) -> tuple[Reply, Sequence[Passage]]:
    """What the handler returns; of a promise the way that its body has to `leave` by."""
    passages = [stage.enter(entry, context, request) for stage in stages]
    reply = entry.handler(context, request)
    promised = not is_body(reply)
    for passage in passages:
        passage.handled(promised=promised)
    return (leave(passages, reply), ()) if is_body(reply) else (reply, passages)


def leave(passages: Sequence[Passage], body: Body) -> Body:
    """What is sent where the handler said `body`."""
    for passage in passages:
        body = passage.reply(body)
    return body


def peek(frame: Buffer) -> tuple[int, int, int]:
    """API key, version and correlation id of a request. Raises ProtocolError."""
    if len(frame) < PEEK.size:
        raise ProtocolError("request header cut short", len(frame), f"{PEEK.size} bytes")
    return PEEK.unpack_from(frame)


def reply_parts(
    body: ApiMessage | EncodedReply, entry: Entry | None, api_version: int, correlation_id: int
) -> tuple[int, list[Buffer]]:
    """A whole response frame, length included: its size and its parts.

    `entry` None stands for ApiVersions in version 0.
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
    """The response that says `error` at its top level.

    Raises CloseConnection where this response, in this version, has no error code of its own.
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
