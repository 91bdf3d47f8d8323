"""The error message for a listener that cannot be opened."""

from __future__ import annotations

import errno
import socket

import pytest

from runtime.listening import cannot_listen


@pytest.mark.parametrize(
    ("host", "error", "text"),
    [
        (
            "127.0.0.1",
            OSError(errno.EADDRINUSE, "error while attempting to bind on address ('127.0.0.1', 1)"),
            "cannot listen on 127.0.0.1:1: Address already in use",
        ),
        ("::1", OSError(errno.EACCES, "x"), "cannot listen on [::1]:1: Permission denied"),
        (
            "no.such.host",
            socket.gaierror(-2, "Name or service not known"),
            "cannot listen on no.such.host:1: Name or service not known",
        ),
    ],
)
def test_address_and_reason(host: str, error: OSError, text: str) -> None:
    told = cannot_listen(host, 1, error)
    assert (told.errno, told.strerror) == (error.errno, text)
