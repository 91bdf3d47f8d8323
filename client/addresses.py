"""Addresses of nodes."""

from __future__ import annotations

from typing import TypeAlias

from client.errors import BadAddress

Address: TypeAlias = tuple[str, int]
"""Host and port."""
PORT_MAX = 65535


def parse_addresses(text: str) -> list[Address]:
    """Parse `host:port,...`, as in bootstrap.servers. Raises BadAddress."""
    found = []
    for entry in text.split(","):
        host, colon, port = entry.strip().rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
            raise BadAddress(
                f"expected HOST:PORT with a port from 1 to {PORT_MAX}, got {entry.strip()!r}"
            )
        found.append((host.strip("[]") or "localhost", int(port)))
    return found
