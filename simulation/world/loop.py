"""An asyncio event loop on virtual time.

The loop never sleeps: when nothing is ready it jumps to the next timer, so an hour of cluster time
costs only the time of its callbacks. Execution depends on the order of `call_soon` and the due
times of timers, and on nothing else: equal seed, equal trace.

It is a real `asyncio` loop (futures, tasks, timeouts and context variables are the standard
library's own), with three parts replaced:

* the clock: `time()` is virtual seconds since the start of the world;
* the iteration: waiting means moving the clock; a wait without any timer is a deadlock and raises;
* the network and the executor: `create_server` and `create_connection` come from
  `world.network.Network`, `run_in_executor` calls the function inline, one iteration later.

Callbacks of a life (`world.life`) that is over are dropped, now and in future; callbacks of a
paused life are kept until it is resumed. Garbage is not collected while a world runs: the time at
which a cycle is found depends on everything the process did before, and finding one can run code.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from simulation.world.life import CURRENT_LIFE, Life, PowerCut, life_of
from simulation.world.network import Network

_T = TypeVar("_T")


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: the world can never continue."""


class Livelock(RuntimeError):
    """Some callback is always ready, and no time passes."""


TURNS_MAX = 20_000
"""Iterations of the loop within one instant."""
TIMERS_MIN = 100
"""Number of timers above which cancelled ones are removed."""


class _Soon(asyncio.Handle):
    """A callback that knows its life. Created without asyncio's own constructor, which checks the
    loop's debug mode each time."""

    __slots__ = ("_life",)

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
        life: Life | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._life = life


class _Timer(asyncio.TimerHandle):
    """A timer that knows its life, as `_Soon`."""

    __slots__ = ("_life",)

    # Attributes of asyncio's own class, which are untyped there.
    _when: float
    _scheduled: bool
    _cancelled: bool
    _loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
        life: Life | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True
        self._life = life

    def cancel(self) -> None:
        """Cancel the timer, as asyncio does."""
        if not self._cancelled:
            self._loop._timer_cancelled_count += self._scheduled  # type: ignore[attr-defined]
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop on virtual time. `network` serves the loop's connections."""

    # Attributes of asyncio's own class, which are untyped there.
    _ready: deque[_Soon | _Timer]
    _scheduled: list[tuple[float, int, _Timer]]
    """Timers by due time; those that are due at the same instant run in the order of their
    creation. Real clocks hardly ever make two equal; virtual time stands still during a whole
    iteration."""
    _stopping: bool
    _timer_cancelled_count: int
    _closed: bool

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.now_s = 0.0
        """Virtual seconds since the world began."""
        self._clock_resolution = 1e-9
        self.network = network
        network.attach(self)
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(self._keep_failure)
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_checked = 0
        self._timers = 0
        self._turns = 0
        """Iterations since time has passed."""

    def time(self) -> float:
        """Return the virtual seconds since the world began."""
        return self.now_s

    def _write_to_self(self) -> None:
        """Do nothing: there is one thread, so the loop never needs a wake-up."""

    def _keep_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        life: Life | None = getattr(context.get("future"), "life", None)
        if life is not None and not life.alive:
            return  # no waiter was left to retrieve it
        if not isinstance(context.get("exception"), PowerCut):
            self.failures.append(context)

    # --- iterations ---------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run iterations until the loop should stop.

        One iteration is as in asyncio: it runs the callbacks that are ready now; callbacks that
        these make ready run in the next one. Waiting means moving the clock.
        """
        while True:
            self._wait()
            self._run_ready()
            if self._stopping:
                return

    def _wait(self) -> None:
        """Move the clock to the next timer unless a callback is ready, and make due timers ready.

        Raises: Deadlock when there is nothing to wait for, Livelock when time does not pass.
        """
        scheduled, ready = self._scheduled, self._ready
        cancelled = self._timer_cancelled_count
        if cancelled and (scheduled[0][2]._cancelled or cancelled > len(scheduled) / 2):
            self._drop_cancelled()
        self._turns += 1
        if not ready and not self._stopping:
            if not scheduled:
                raise Deadlock(f"at {self.now_s:.3f} s nothing is ready and no timer is set")
            wait_s = scheduled[0][0] - self.now_s
            if wait_s > 0:
                self.now_s += wait_s
                self._turns = 0
        if self._turns > TURNS_MAX:
            some = [repr(handle) for handle in list(ready)[:5]]
            raise Livelock(f"at {self.now_s:.3f} s time does not pass; {some}")
        due_s = self.now_s + self._clock_resolution
        while scheduled and scheduled[0][0] < due_s:
            timer = heapq.heappop(scheduled)[2]
            timer._scheduled = False
            if timer._cancelled:  # a cancelled timer behind an active one
                self._timer_cancelled_count -= 1
            else:
                ready.append(timer)

    def _run_ready(self) -> None:
        # As `Handle._run`, without a call for each callback: there are a thousand in a virtual
        # second.
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            life = handle._life
            if handle._cancelled:
                continue
            if life is not None and life.parked is not None:
                life.parked.append(handle)  # a paused life keeps its callbacks for later
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio's own
                self._failed_in(handle, error)
            if life is not None and life.alive:
                if life.watch is not None:
                    life.watch(life)
                if life.cost_s and life.parked is None:
                    self._take_time(life)

    def _failed_in(self, handle: _Soon | _Timer, error: BaseException) -> None:
        message = f"Exception in callback {handle!r}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    def _take_time(self, life: Life) -> None:
        """Let a callback of a slow process take time; callbacks due in the meantime wait."""
        life.parked = []
        free = contextvars.Context()
        self.call_at(self.now_s + life.cost_s, self._spent, life, context=free)

    def _drop_cancelled(self) -> None:
        """Remove cancelled timers: at the head at once, elsewhere once they are many."""
        scheduled = self._scheduled
        if len(scheduled) > TIMERS_MIN and self._timer_cancelled_count > len(scheduled) / 2:
            for _, _, timer in scheduled:
                timer._scheduled = not timer._cancelled
            scheduled[:] = [one for one in scheduled if not one[2]._cancelled]
            heapq.heapify(scheduled)
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0][2]._cancelled:
            heapq.heappop(scheduled)[2]._scheduled = False
            self._timer_cancelled_count -= 1

    # --- lives --------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a callback as asyncio does, unless its life is over."""
        life = CURRENT_LIFE.get() if context is None else context.get(CURRENT_LIFE)
        handle = _Soon(callback, args, self, context, life)
        if life is not None and not life.alive:
            handle.cancel()  # also after the end of the run: collected transports close themselves
        elif self._closed:
            raise RuntimeError("Event loop is closed")
        else:
            self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Set a timer as asyncio does, unless its life is over."""
        self._timers += 1
        life = CURRENT_LIFE.get() if context is None else context.get(CURRENT_LIFE)
        timer = _Timer(when, callback, args, self, context, life)
        if life is not None and not life.alive:
            timer._scheduled = False
            timer.cancel()
        else:
            heapq.heappush(self._scheduled, (when, self._timers, timer))
        return timer

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Set a timer as asyncio does, unless its life is over."""
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def held_by(self, life: Life) -> tuple[int, int]:
        """Return the number of pending tasks and timers of this life."""
        tasks = sum(getattr(one, "life", None) is life and not one.done() for one in self._tasks)
        timers = sum(one._life is life and not one._cancelled for _, _, one in self._scheduled)
        return tasks, timers

    def end_life(self, life: Life) -> None:
        """Cancel all callbacks of this life. The caller's own stack continues."""
        life.alive = False
        timers = [timer for _, _, timer in self._scheduled]
        for handle in [*self._ready, *timers, *(life.parked or ())]:
            if handle._life is life:
                handle.cancel()
        life.parked = None

    def pause_life(self, life: Life) -> None:
        """Hold all callbacks of this life until `resume_life`; its time passes all the same."""
        assert life.alive and life.parked is None
        life.parked = []

    def resume_life(self, life: Life) -> None:
        """Run the callbacks that became due in the meantime, in the order of their due times."""
        parked, life.parked = life.parked, None
        self._ready.extend(parked or ())

    def _spent(self, life: Life) -> None:
        parked, life.parked = life.parked, None
        life.waited += len(parked or ())
        self._ready.extendleft(reversed(parked or ()))

    def create_future(self) -> asyncio.Future[Any]:
        """Create a future as asyncio does; it knows its life."""
        future: asyncio.Future[Any] = asyncio.Future(loop=self)
        future.life = CURRENT_LIFE.get()  # type: ignore[attr-defined]
        return future

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Create a task as asyncio does; tasks are held, in order of creation, until they
        are done."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        task.life = life_of(options.get("context"))  # type: ignore[attr-defined]
        self._tasks.append(task)
        if len(self._tasks) > 2 * self._tasks_checked + 1000:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._tasks_checked = len(self._tasks)
        return task

    def run_in_executor(  # type: ignore[override]
        self, _executor: Any, func: Callable[..., _T], *args: Any
    ) -> Any:
        """Call `func` inline, one iteration later: there are no worker threads in virtual time."""
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
        server = self.network.listen(protocol_factory, host, port)
        server.listens = kwargs.get("start_serving", True)
        return server

    async def create_connection(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """Connect through the in-memory network.

        Raises: ConnectionRefusedError when no server listens there.
        """
        host, port = _address(args, kwargs)
        return await self.network.connect(protocol_factory, host, port)

    def run_world(self, main: Coroutine[Any, Any, _T]) -> _T:
        """Run `main` to its end, then cancel the tasks that are left."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            return self.run_until_complete(main)
        finally:
            left = [task for task in self._tasks if not task.done()]
            lives = [getattr(task, "life", None) for task in left]
            living = [t for t, life in zip(left, lives, strict=True) if not life or _runs(life)]
            for task in living:
                task.cancel()
            if living:
                self.run_until_complete(asyncio.gather(*living, return_exceptions=True))
            self._bury_all()
            self._tasks.clear()
            if collecting:
                gc.enable()

    def _bury_all(self) -> None:
        """Close tasks that are not done, with tasks created by their clean-up: no loop would ever
        run them."""
        buried: set[asyncio.Task[Any]] = set()
        while left := [one for one in self._tasks if not one.done() and one not in buried]:
            for task in left:
                self._bury(task)
            buried.update(left)

    def _bury(self, task: asyncio.Task[Any]) -> None:
        """Close the coroutine of a task whose life is over, before the garbage collector
        does it."""
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coro: Any = task.get_coro()
        # Its clean-up runs on a machine that is off: exceptions from it are meaningless.
        with contextlib.suppress(BaseException):
            coro.close()


def _runs(life: Life) -> bool:
    return life.alive and life.parked is None


def _address(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int]:
    host = kwargs.get("host", args[0] if args else None)
    port = kwargs.get("port", args[1] if len(args) > 1 else None)
    if isinstance(host, (list, tuple)):
        host = host[0]
    return host or "localhost", port or 0
