"""Errors that the client raises, beside those of the network and of unreadable answers.

- `ApiError`, an error code of Kafka's protocol, from `protocol.errors`; `Refused` is one that says
  what it is about;
- `OSError`, of which `ConnectionLost` is one: nobody answered. Whether the request was carried out
  is not known;
- `ProtocolError` and `EncodeError`: an answer, or a request, that its version cannot carry;
- `ClientError`: whatever this package itself gives up on. Its text is a sentence for people.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.errors import ApiError, ErrorCode
from protocol.schema import Struct


class ClientError(Exception):
    """The client gave up; the text says why."""


class BadAddress(ClientError):
    """A text that is not HOST:PORT."""


class Refused(ClientError, ApiError):
    """A node refused something. `subject` is what: a topic, a partition, a group.

    `number` is the code as it came, `code` UNKNOWN_SERVER_ERROR if Kafka 4.3 has none such.
    """

    def __init__(self, subject: str, number: int, message: str | None = None) -> None:
        known = number in ErrorCode._value2member_map_
        ApiError.__init__(self, ErrorCode(number if known else -1), message)
        self.subject = subject
        self.number = number

    @property
    def reason(self) -> str:
        """Kafka's name of the error and a sentence."""
        if self.number != self.code:
            return f"error {self.number}"
        return f"{self.code.name}: {self.message or self.code.text}"

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}"


class LeaderMoved(ApiError):
    """A refusal that named a newer leader (KIP-951): to be tried there at once."""


class OffsetOutOfRange(ClientError):
    """A position that the log does not have."""


class NotJoined(ClientError):
    """The coordinator did not let a member into its group."""


def check(number: int, subject: str, message: str | None = None) -> None:
    """Raises Refused unless the code is NONE."""
    if number != ErrorCode.NONE:
        raise Refused(subject, number, message)


def error_codes(message: Struct) -> Iterator[int]:
    """Every error code in a response, wherever it stands."""
    for name, value in message.items():
        if name == "error_code":
            yield value
        elif isinstance(value, list):
            for entry in value:
                if isinstance(entry, Struct):
                    yield from error_codes(entry)
