"""Shell: Journal of a local cluster: the actions on its nodes and links, and what followed.

Each line of `events.jsonl` is a JSON object with `time_ms` (since 1970), `event` and its facts. The
supervisor and the router of an isolated network append to it; `kraftbox events` and
`kraftbox audit` read it. Lines are short, so one `write` appends each as a whole.

| event | facts |
|---|---|
| cluster-starting, cluster-ready, cluster-stopping, cluster-stopped | nodes, by |
| kill, stop, pause, resume, start, cut-off, reconnect | node, by |
| ready, exited | node; code, and `expected`: the exit was requested |
| network-failed | node, error: a cut-off or reconnect had no effect |
| links | rules as [from, to, loss, delay ms, jitter ms, bytes/s, duplicates, reordered], by |

`by` is the command that requested the action. 0 as the end of a link means clients.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

NAME = "events.jsonl"
OLD_NAME = "events.old.jsonl"
BYTES_MAX = 8 << 20
"""A longer journal is renamed, and replaces the one that was renamed before."""


class Journal:
    """The journal in a cluster's directory; safe for several processes."""

    def __init__(self, root: str) -> None:
        self._path = f"{root}/{NAME}"
        self._old_path = f"{root}/{OLD_NAME}"

    def note(self, event: str, **facts: Any) -> None:
        """Append an event that happens now. A journal that cannot be written stops no cluster."""
        given = {key: value for key, value in facts.items() if value is not None}
        line = json.dumps({"time_ms": time.time_ns() // 1_000_000, "event": event, **given})
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(self._path, flags, 0o600)
            try:
                os.write(fd, f"{line}\n".encode())
                if os.fstat(fd).st_size > BYTES_MAX:
                    os.replace(self._path, self._old_path)
            finally:
                os.close(fd)
