"""Shell: Errors of addresses that cannot be listened on, in words."""

from __future__ import annotations

import os
import socket


def cannot_listen(host: str, port: int, error: OSError) -> OSError:
    """The same failure, its text without what the event loop puts around address and reason."""
    unresolved = isinstance(error, socket.gaierror) or error.errno is None
    reason = error.strerror if unresolved else os.strerror(error.errno or 0)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return OSError(error.errno, f"cannot listen on {address}: {reason or error}")
