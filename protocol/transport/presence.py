"""Shell: Work that nobody wants any more when its client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.transport.dispatch import Connection


@contextmanager
def while_connected(connection: Connection) -> Iterator[None]:
    """Cancel the task that runs this when the connection is gone. For what waits long and would
    have an effect that nobody hears of; other requests go on without their client."""
    task = asyncio.current_task()
    assert task is not None

    def give_up() -> None:
        task.cancel()

    connection.add_close_callback(give_up)
    try:
        yield
    finally:
        connection.remove_close_callback(give_up)
