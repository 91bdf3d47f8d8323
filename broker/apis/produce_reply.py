"""The usual answer to a produce request, encoded except for its numbers.

Successful answers to one batch differ in three integers only. The frame is encoded once per
version, topic and partition, by the codec like any other. It is then copied, and the integers are
inserted.
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
"""Beyond this number of partitions the cache of forms is cleared."""

_three = struct.Struct(">qqq")
_two = struct.Struct(">qq")
_length = struct.Struct(">i")
# Numbers that occur nowhere else in an answer: a name has other bytes, an id is shorter.
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
        """Return the answer to a request with one batch, for the topic's name, or id from version
        13 on."""
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
