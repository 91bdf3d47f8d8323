"""An asyncio event loop on virtual time.

The loop never sleeps: when nothing is ready it jumps to the next timer, so an hour of
cluster time costs what its callbacks cost. Everything that runs on it is decided by the order
of `call_soon` and by the timers' due times, and nothing else: equal seed, equal trace.

It is a real `asyncio` loop (futures, tasks, timeouts and context variables are the standard
library's own), with three things replaced:

* the clock: `time()` is virtual seconds since the start of the world;
* the selector: waiting is moving the clock; a wait without any timer is a deadlock and raises;
* the network and the executor: `create_server` and `create_connection` come from
  `world.network.Network`, `run_in_executor` calls the function in line, one turn later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.sim.world.network import Network

_T = TypeVar("_T")


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: the world can never move again."""


class _VirtualSelector:
    """Stands where the loop keeps its selector; `select` moves the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Advance virtual time by `timeout` seconds and report no I/O events.

        Raises Deadlock when there is nothing to wait for.
        """
        if timeout is None:
            raise Deadlock(f"at {self._loop.time():.3f} s nothing is ready and no timer is set")
        if timeout > 0:
            self._loop.advance(timeout)
        return []

    def close(self) -> None:
        """Nothing is held."""


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module's description. `network` serves the loop's connections."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = _VirtualSelector(self)
        self._clock_resolution = 1e-9
        self.network = network
        network.attach(self)
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(self._keep_failure)

    def time(self) -> float:
        """Virtual seconds since the world began."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._now_s += seconds

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: the network delivers by timers."""

    def _write_to_self(self) -> None:
        """One thread only, so nobody needs waking."""

    def _keep_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def run_in_executor(self, _executor: Any, func: Callable[..., _T], *args: Any) -> Any:
        """Call `func` in line, one turn later: worker threads have no place in virtual time."""
        future: asyncio.Future[_T] = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - the caller's await raises it
                future.set_exception(error)

        self.call_soon(call)
        return future

    async def create_server(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """Listen in the in-memory network; port 0 takes the host's next free port."""
        host, port = _address(args, kwargs)
        return self.network.listen(protocol_factory, host, port)

    async def create_connection(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """Connect through the in-memory network.

        Raises ConnectionRefusedError when nobody listens there.
        """
        host, port = _address(args, kwargs)
        return await self.network.connect(protocol_factory, host, port)

    def run_world(self, main: Coroutine[Any, Any, _T]) -> _T:
        """Run `main` to its end, then cancel what is left."""
        try:
            return self.run_until_complete(main)
        finally:
            left = [task for task in asyncio.all_tasks(self) if not task.done()]
            for task in sorted(left, key=lambda task: task.get_name()):
                task.cancel()
            if left:
                self.run_until_complete(asyncio.gather(*left, return_exceptions=True))


def _address(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int]:
    host = kwargs.get("host", args[0] if args else None)
    port = kwargs.get("port", args[1] if len(args) > 1 else None)
    if isinstance(host, (list, tuple)):
        host = host[0]
    return host or "localhost", port or 0
