"""Counters of requests and connections: plain integers, read at scrape time.

Times are counted, not kept: a reply adds one to a bucket that is a power of two of microseconds
wide, which costs a tenth of a microsecond. `request_metrics` makes quantiles of the buckets.

What Kafka's phases are in one loop:

- request queue: from the moment the bytes were read to the handler's start, while the requests
  that arrived with them are served. What the kernel still holds has not begun, nor has what a
  connection holds back because too many of its answers wait.
- local: the handler, up to its answer or its promise of one.
- remote: until the promise was kept (a commit, bytes to fetch, a task).
- response queue: the answer waits for the answers to earlier requests of its connection.
- response send: encoding and handing to the socket.
"""

from __future__ import annotations

BUCKETS = 64
"""Powers of two of microseconds: more than any clock counts, so no index needs a check."""


class ApiStats:
    """What one API did. `total[n]` counts replies that took less than 2^n microseconds; the same
    for the phases, where a phase that took no time at all is not counted."""

    __slots__ = (
        "api_name",
        "bytes_in",
        "bytes_out",
        "errors",
        "local",
        "parent_name",
        "remote",
        "request_queue",
        "requests",
        "response_queue",
        "response_send",
        "total",
        "total_ms",
    )

    def __init__(self, api_name: str, version_max: int, parent_name: str = "") -> None:
        """Of one kind of an API's requests, when `parent_name` is that API's."""
        self.api_name = api_name
        self.parent_name = parent_name
        self.requests = [0] * (version_max + 1)
        self.errors: dict[int, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.total_ms = 0.0
        self.total = [0] * BUCKETS
        self.request_queue = [0] * BUCKETS
        self.local = [0] * BUCKETS
        self.remote = [0] * BUCKETS
        self.response_queue = [0] * BUCKETS
        self.response_send = [0] * BUCKETS

    def answered(self, queued_ms: float, local_ms: float, send_ms: float, total_ms: float) -> None:
        """Count one reply. It passed `waited` before, unless the handler answered at once."""
        self.total_ms += total_ms
        self.total[int(total_ms * 1000.0).bit_length()] += 1
        self.local[int(local_ms * 1000.0).bit_length()] += 1
        self.response_send[int(send_ms * 1000.0).bit_length()] += 1
        if queued_ms:
            self.request_queue[int(queued_ms * 1000.0).bit_length()] += 1

    def waited(self, remote_ms: float, queued_ms: float) -> None:
        """A reply that was promised was ready after `remote_ms`, and sent `queued_ms` later."""
        self.remote[int(remote_ms * 1000.0).bit_length()] += 1
        self.response_queue[int(queued_ms * 1000.0).bit_length()] += 1

    def add_error(self, code: int) -> None:
        """Count an error code in a response."""
        self.errors[code] = self.errors.get(code, 0) + 1


class ConnectionStats:
    """What the connections of one listener did."""

    __slots__ = ("accepted", "bytes_in", "bytes_out", "closed_idle", "open", "refused")

    def __init__(self) -> None:
        self.open = 0
        self.accepted = 0
        self.refused = 0
        self.closed_idle = 0
        self.bytes_in = 0
        self.bytes_out = 0
