"""SaslHandshake (API key 17), versions 0-1."""

from __future__ import annotations

from protocol.schema import FRESH, Request, Response, array, field, int16, string


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    error_code: int = field(int16, "0+", default=0)
    mechanisms: list[str] = field(array(string), "0+", default=FRESH)


class SaslHandshakeRequest(
    Request[SaslHandshakeResponse], api_key=17, versions="0-1", listeners=("broker", "controller")
):
    mechanism: str = field(string, "0+", default="")
