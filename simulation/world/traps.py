"""Traps for calls to the real world, active while a simulated one runs.

Code that must be replayable from a seed gets time, randomness, disk and network as arguments.
`locked` replaces the usual functions around that with ones that raise `Forbidden`. `disguised`
makes this process look like another machine at another time: code that uses other ways gets a
different trace.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import platform
import random
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock


class Forbidden(AssertionError):
    """A call to the real world by simulated code."""


_DOORS: tuple[tuple[Any, str], ...] = (
    (time, "time"),
    (time, "time_ns"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (time, "perf_counter"),
    (time, "perf_counter_ns"),
    (time, "sleep"),
    (os, "urandom"),
    (os, "open"),
    (os, "getpid"),
    (uuid, "uuid1"),
    (uuid, "uuid4"),
    (secrets, "token_bytes"),
    (secrets, "randbits"),
    (random, "random"),
    (random, "randint"),
    (random, "randrange"),
    (random, "uniform"),
    (random, "choice"),
    (random, "shuffle"),
    (random, "sample"),
    (random, "getrandbits"),
    (random, "SystemRandom"),
    (socket, "socket"),
    (socket, "gethostname"),
    (socket, "getfqdn"),
    (threading.Thread, "start"),
    (builtins, "open"),
)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Forbid real time, randomness, disk, network and threads inside.

    Raises: Forbidden at the end as well, if the code inside caught the first one.
    """
    called: list[str] = []

    def trap(name: str) -> Callable[..., Any]:
        def forbidden(*_args: Any, **_options: Any) -> Any:
            called.append(name)
            raise Forbidden(f"simulated code called {name}")

        return forbidden

    with contextlib.ExitStack() as stack:
        for owner, name in _DOORS:
            full_name = f"{owner.__name__}.{name}"
            stack.enter_context(mock.patch.object(owner, name, trap(full_name)))
        yield
    if called:
        raise Forbidden(f"simulated code called {called[:5]}")


@contextlib.contextmanager
def disguised() -> Iterator[None]:
    """Show another host, another process id, and a time years later inside."""
    offset_s = 5 * 365 * 86_400 + 12_345.678
    real_time, real_monotonic = time.time, time.monotonic
    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (time, "time", lambda: real_time() + offset_s),
            (time, "time_ns", lambda: int((real_time() + offset_s) * 1e9)),
            (time, "monotonic", lambda: real_monotonic() + offset_s),
            (socket, "gethostname", lambda: "elsewhere"),
            (socket, "getfqdn", lambda name="": "elsewhere.example"),
            (platform, "node", lambda: "elsewhere"),
            (os, "getpid", lambda: 4_194_303),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(
            mock.patch.dict(os.environ, {"HOSTNAME": "elsewhere", "TZ": "Pacific/Auckland"})
        )
        time.tzset()
        stack.callback(time.tzset)
        yield
