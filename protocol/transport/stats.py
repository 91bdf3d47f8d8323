"""Counters of requests and connections: plain integers, read at scrape time.

Times are counted, not stored: a reply adds one to a bucket whose bounds are powers of two in
microseconds, which costs a tenth of a microsecond. `request_metrics` computes quantiles from them.

Kafka's phases in a single event loop:

- request queue: from the read of the bytes to the handler's start, while the requests that arrived
  with them are served. Bytes in the kernel do not count yet, nor do requests that a connection
  holds back because too many of its replies are pending.
- local: the handler, until it returns its reply or an awaitable.
- remote: until the awaitable ends (a commit, bytes to fetch, a task).
- response queue: the reply waits for the replies to earlier requests of its connection.
- response send: encoding, and writing to the transport.
"""

from __future__ import annotations

BUCKETS = 64
"""Powers of two in microseconds: more than any clock counts, so that no index needs a check."""


class ApiStats:
    """Counters of one API.

    `total[n]` counts replies that took from 2^(n-1) to less than 2^n microseconds, as do the lists
    of the phases. A reply without a wait is not counted in the two queues and in `remote`.
    """

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
        """Count one API, or with `parent_name` one kind of the requests of that API."""
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
        """Count one reply; `waited` was called before unless the handler replied at once."""
        self.total_ms += total_ms
        self.total[int(total_ms * 1000.0).bit_length()] += 1
        self.local[int(local_ms * 1000.0).bit_length()] += 1
        self.response_send[int(send_ms * 1000.0).bit_length()] += 1
        if queued_ms:
            self.request_queue[int(queued_ms * 1000.0).bit_length()] += 1

    def waited(self, remote_ms: float, queued_ms: float) -> None:
        """Count a later reply: ready after `remote_ms`, and sent `queued_ms` after that."""
        self.remote[int(remote_ms * 1000.0).bit_length()] += 1
        self.response_queue[int(queued_ms * 1000.0).bit_length()] += 1

    def add_error(self, code: int) -> None:
        """Count an error code in a response."""
        self.errors[code] = self.errors.get(code, 0) + 1


class ConnectionStats:
    """Counters of one listener's connections."""

    __slots__ = ("accepted", "bytes_in", "bytes_out", "closed_idle", "open", "refused")

    def __init__(self) -> None:
        self.open = 0
        self.accepted = 0
        self.refused = 0
        self.closed_idle = 0
        self.bytes_in = 0
        self.bytes_out = 0
