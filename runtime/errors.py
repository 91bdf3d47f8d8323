"""Failures that are ours.

There are two kinds of failure. What the world does wrong (a client, a peer, a disk) has an error
code and is answered. What *we* did wrong is an `InvariantViolated`: nobody catches it except the
task supervisor, which stops the process, because going on with broken state would break promises
that were already given to clients.
"""

from __future__ import annotations


class InvariantViolated(Exception):
    """A promise that this code gives to itself does not hold; the process must stop."""


class StartupRefused(Exception):
    """The node cannot start for a reason that the operator can remove; the message says which."""


def invariant(holds: bool, message: str) -> None:
    """Raise `InvariantViolated` with `message` unless `holds`."""
    if not holds:
        raise InvariantViolated(message)
