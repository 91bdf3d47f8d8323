"""Shell: Names of the programs that send requests to a control socket, for the journal."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Sequence

WORDS_MAX = 8
OWN_PROCESSES = {"_testbed": "the faults of the testbed file", "_testing": "kraftbox.testing"}
_UCRED = struct.Struct("3i")


def command_of(connection: socket.socket) -> str | None:
    """Return the program at the other end of a Unix socket, None if it cannot be determined."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    with contextlib.suppress(OSError, ValueError):
        data = connection.getsockopt(socket.SOL_SOCKET, option, _UCRED.size)
        pid, _, _ = _UCRED.unpack(data)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return in_words([os.fsdecode(part) for part in file.read().split(b"\0")[:-1]])
    return None


def in_words(arguments: Sequence[str]) -> str | None:
    """Return a command line without its options: they may have secrets.

    `python -m kraftbox node kill 2 --dir x` becomes `kraftbox node kill 2`, other programs become
    the name of their script or module.
    """
    at = next((at for at, one in enumerate(arguments) if _is_kraftbox(one)), None)
    if at is not None:
        words = []
        for one in arguments[at + 1 : at + 1 + WORDS_MAX]:
            if one.startswith("-"):
                break
            words.append(one)
        if words and words[0] in OWN_PROCESSES:
            return OWN_PROCESSES[words[0]]
        return " ".join(["kraftbox", *words])
    if not arguments:
        return None
    rest = list(arguments[1:]) if os.path.basename(arguments[0]).startswith("python") else []
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        rest.pop(0)
    if rest[:1] == ["-m"] and len(rest) > 1:
        return rest[1]
    if rest and not rest[0].startswith("-"):
        return os.path.basename(rest[0])
    return os.path.basename(arguments[0])


def _is_kraftbox(argument: str) -> bool:
    return os.path.basename(argument) == "kraftbox" or argument.endswith("kraftbox/__main__.py")
