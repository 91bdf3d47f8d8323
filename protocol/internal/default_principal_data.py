"""DefaultPrincipalData, version 0."""

from __future__ import annotations

from protocol.schema import Message, boolean, field, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = field(string, "0+", default="")
    name: str = field(string, "0+", default="")
    token_authenticated: bool = field(boolean, "0+", default=False)
