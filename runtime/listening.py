"""Shell: Error messages for addresses that cannot be listened on."""

from __future__ import annotations

import os
import socket


def cannot_listen(host: str, port: int, error: OSError) -> OSError:
    """Return the error with a short message: the address and the reason, without asyncio's text."""
    unresolved = isinstance(error, socket.gaierror) or error.errno is None
    reason = error.strerror if unresolved else os.strerror(error.errno or 0)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return OSError(error.errno, f"cannot listen on {address}: {reason or error}")
