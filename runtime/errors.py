"""Errors for bugs of this program and for refused starts.

There are two kinds of failure. A failure outside this program (of a client, a peer, a disk) has an
error code, which is the response. A bug of this program raises `InvariantViolated`. Only the task
supervisor handles it, by stopping the process: continuing with broken state would break promises
already made to clients.
"""

from __future__ import annotations


class InvariantViolated(Exception):
    """An internal invariant does not hold; the process must stop."""


class StartupRefused(Exception):
    """The node cannot start for a reason that the operator can remove.

    The message has the reason.
    """


def invariant(holds: bool, message: str) -> None:
    """Raise `InvariantViolated` with `message` unless `holds`."""
    if not holds:
        raise InvariantViolated(message)
