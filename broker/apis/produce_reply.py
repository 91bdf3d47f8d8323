"""The usual answer to a produce request, encoded but for its numbers.

An answer to one batch that went well differs from the one before in three integers. Its frame is
encoded once per version, topic and partition, by the codec like any other; then it is copied, and
the integers are put where they belong.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.headers import response_header_version
from protocol.messages.produce import ProduceResponse
from protocol.transport.dispatch import FramedReply

if TYPE_CHECKING:
    from storage.log.append import AppendInfo

LOG_START_SINCE: Final = 5
FORMS_MAX: Final = 4096
"""Beyond so many partitions the forms are made anew."""

_three = struct.Struct(">qqq")
_two = struct.Struct(">qq")
_length = struct.Struct(">i")
# Numbers that stand nowhere else in an answer: a name has other bytes, an id is shorter.
_MARKS: Final = (-0x123456789ABCDEF0, -0x23456789ABCDEF01, -0x3456789ABCDEF012)

_Form = tuple[bytes, int]


class Acknowledgements:
    """Frames by version, topic and partition."""

    def __init__(self) -> None:
        self._forms: dict[tuple[int, str | bytes, int], _Form] = {}

    def __len__(self) -> int:
        return len(self._forms)

    def reply(
        self, version: int, topic: str | bytes, index: int, info: AppendInfo, log_start_offset: int
    ) -> FramedReply:
        """To a request with one batch for the topic of this name, or id from version 13 on."""
        form = self._forms.get((version, topic, index))
        if form is None:
            form = self._make(version, topic, index)
        frame = bytearray(form[0])
        if version >= LOG_START_SINCE:
            _three.pack_into(
                frame, form[1], info.first_offset, info.log_append_time_ms, log_start_offset
            )
        else:
            _two.pack_into(frame, form[1], info.first_offset, info.log_append_time_ms)
        return FramedReply(frame)

    def _make(self, version: int, topic: str | bytes, index: int) -> _Form:
        base_offset, time_ms, start = _MARKS
        result = ProduceResponse.PartitionProduceResponse(
            index=index, base_offset=base_offset, log_append_time_ms=time_ms
        )
        marks = _two.pack(base_offset, time_ms)
        if version >= LOG_START_SINCE:
            result.log_start_offset = start
            marks = _three.pack(*_MARKS)
        named = ProduceResponse.TopicProduceResponse(partition_responses=[result])
        if isinstance(topic, bytes):
            named.topic_id = topic
        else:
            named.name = topic
        body = encode(ProduceResponse(responses=[named]), version)
        head = bytes(4 + response_header_version(ApiKey.PRODUCE, version))
        frame = _length.pack(len(head) + len(body)) + head + body
        if len(self._forms) >= FORMS_MAX:
            self._forms.clear()
        form = self._forms[(version, topic, index)] = (frame, frame.index(marks))
        return form
