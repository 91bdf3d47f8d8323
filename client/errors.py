"""Errors of the client, in addition to network errors and malformed responses.

- `ApiError`, an error code of Kafka's protocol, from `protocol.errors`; `Refused` is one with the
  subject of the request;
- `OSError`, including `ConnectionLost`: no answer. It is unknown whether the request was carried
  out;
- `ProtocolError` and `EncodeError`: a response or request that its version cannot represent;
- `ClientError`: an operation that this package abandons. Its text is a sentence for users.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.errors import ApiError, ErrorCode
from protocol.schema import Struct
from protocol.transport.client import ConnectionLost


class ClientError(Exception):
    """The client has abandoned an operation; the text has the reason."""


class ClientClosed(ClientError, ConnectionLost):
    """The client was closed, so the request was not sent."""


class BadAddress(ClientError):
    """A text is not HOST:PORT."""


class Refused(ClientError, ApiError):
    """A node refused a request about `subject`: a topic, a partition, a group.

    `number` is the received code; `code` is UNKNOWN_SERVER_ERROR if Kafka 4.3 has no such code.
    """

    def __init__(self, subject: str, number: int, message: str | None = None) -> None:
        known = number in ErrorCode._value2member_map_
        ApiError.__init__(self, ErrorCode(number if known else -1), message)
        self.subject = subject
        self.number = number

    @property
    def reason(self) -> str:
        """Kafka's name of the error and its message."""
        if self.number != self.code:
            return f"error {self.number}"
        return f"{self.code.name}: {self.message or self.code.text}"

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}"


class LeaderMoved(ApiError):
    """An error that names a newer leader (KIP-951): retry there at once."""


class OffsetOutOfRange(ClientError):
    """A position is outside the log."""


class NotJoined(ClientError):
    """The coordinator did not accept a member into its group."""


def check(number: int, subject: str, message: str | None = None) -> None:
    """Raise Refused unless the code is NONE."""
    if number != ErrorCode.NONE:
        raise Refused(subject, number, message)


def error_codes(message: Struct) -> Iterator[int]:
    """Yield every error code in a response, at any depth."""
    for name, value in message.items():
        if name == "error_code":
            yield value
        elif isinstance(value, list):
            for entry in value:
                if isinstance(entry, Struct):
                    yield from error_codes(entry)
