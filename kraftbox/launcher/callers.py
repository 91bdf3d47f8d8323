"""Shell: Connections to a kraftbox control socket: framed requests in, framed answers out.

The serving process has other work in the same `select`, so no caller may block it. A caller that is
silent or does not read delays only itself. A caller that breaks the protocol, or does not read its
answers, is disconnected. A request that fails is answered with an error.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import traceback
from collections.abc import Callable
from typing import Any, TypeAlias

from kraftbox.launcher import frames

CALLERS_MAX = 64
"""Connections per socket. One more replaces the least recently served connection."""
REQUESTS_MAX = 64
"""Requests per caller, just read or not yet answered. kraftbox's own programs send one at a
time.
"""
UNREAD_BYTES_MAX = 4 * frames.BODY_BYTES_MAX
"""Bytes of answers that a caller has not read yet."""


class RequestRefused(Exception):
    """The request is invalid or cannot be carried out; the message has the reason."""


class Caller:
    """One connection to the control socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.decoder = frames.Decoder()
        self.tokens: set[int] = set()
        """Tokens of requests that are answered later."""
        self.unread = bytearray()
        self.gone = False


Take: TypeAlias = Callable[[Caller, dict[str, Any]], frames.Message | None]
"""Carries out a request. Returns its answer, or None if it is passed to `Callers.reply` later."""


class Callers:
    """All connections to `listener`; the owner of `listener` closes it.

    The data of each key in `selector` is a function to call when the key is ready.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: socket.socket,
        take: Take,
        lost: Callable[[Caller], None] = lambda _: None,
    ) -> None:
        """Start serving.

        `take` raises RequestRefused for a request to be answered with an error. `lost` is called
        with each caller that was disconnected.
        """
        self._selector = selector
        self._listener = listener
        self._take = take
        self._lost = lost
        self._callers: dict[Caller, None] = {}
        """Connections in the order of their last service, least recent first."""
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def __iter__(self) -> Any:
        return iter(list(self._callers))

    def __len__(self) -> int:
        return len(self._callers)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # the client has gone, or this process has no free descriptor
        if len(self._callers) >= CALLERS_MAX:
            self.forget(next((one for one in self if not one.tokens), next(iter(self))))
        connection.setblocking(False)
        caller = Caller(connection)
        self._callers[caller] = None
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._serve(caller))

    def _serve(self, caller: Caller) -> None:
        if caller.gone:
            return  # forgotten earlier in the same loop iteration
        self._callers[caller] = self._callers.pop(caller)
        try:
            self._write(caller)
            data = caller.connection.recv(1 << 16)
            requests = caller.decoder.feed(data)
        except BlockingIOError:
            return
        except (OSError, frames.FrameError):
            data, requests = b"", []
        if not data or len(requests) + len(caller.tokens) > REQUESTS_MAX:
            self.forget(caller)
            return
        for request in requests:
            answer = self._answer_to(caller, request)
            if answer is not None:
                self.reply(caller, answer)

    def _answer_to(self, caller: Caller, request: dict[str, Any]) -> frames.Message | None:
        try:
            return self._take(caller, request)
        except RequestRefused as error:
            return {"error": frames.clipped(str(error))}
        except Exception as error:  # noqa: BLE001 - a request fails alone
            traceback.print_exc()
            return {"error": frames.clipped(f"the request failed: {error!r}")}

    def reply(self, caller: Caller, answer: frames.Message) -> None:
        """Send an answer: as much as the socket accepts now, the rest when the caller reads."""
        if caller.gone:
            return
        try:
            framed = frames.encode(answer)
        except frames.FrameError as error:
            framed = frames.encode({"error": f"cannot send the answer: {error}"})
        caller.unread += framed
        try:
            self._write(caller)
        except OSError:
            self.forget(caller)
        if len(caller.unread) > UNREAD_BYTES_MAX:
            self.forget(caller)

    def _write(self, caller: Caller) -> None:
        """Send as much as the socket accepts. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            while caller.unread:
                del caller.unread[: caller.connection.send(caller.unread)]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if caller.unread else 0)
        key = self._selector.get_key(caller.connection)
        if key.events != events:
            self._selector.modify(caller.connection, events, key.data)

    def forget(self, caller: Caller) -> None:
        """Disconnect a caller and call `lost`; no effect if it has already gone."""
        if caller.gone:
            return
        caller.gone = True
        del self._callers[caller]
        self._selector.unregister(caller.connection)
        caller.connection.close()
        self._lost(caller)

    def close(self) -> None:
        """Disconnect all callers; answers that they have not read are dropped."""
        for caller in self:
            self.forget(caller)
