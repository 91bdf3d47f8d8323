"""Frames between our own processes: whole, split, and broken."""

import msgpack
import pytest
from crc32c import crc32c

from kraftbox.launcher.frames import BODY_BYTES_MAX, Decoder, FrameError, clipped, encode

MESSAGES = [{"do": "start", "id": 1, "properties": {"a": "b ä"}}, {}, {"n": [1, -2, None, True]}]
STREAM = b"".join(map(encode, MESSAGES))


def test_the_layout_is_magic_version_length_body_checksum():
    body = msgpack.packb({"a": 1})
    framed = b"KBXC" + b"\x01" + len(body).to_bytes(4, "big") + body
    assert encode({"a": 1}) == framed + crc32c(framed).to_bytes(4, "big")


@pytest.mark.parametrize("step", [1, 2, 7, 13, len(STREAM)])
def test_messages_arrive_however_the_stream_is_cut(step):
    decoder = Decoder()
    got = []
    for at in range(0, len(STREAM), step):
        got += decoder.feed(STREAM[at : at + step])
    assert got == MESSAGES
    assert not decoder.incomplete


def test_a_cut_frame_is_known_to_be_incomplete():
    decoder = Decoder()
    assert decoder.feed(STREAM[:-1]) == MESSAGES[:-1]
    assert decoder.incomplete


@pytest.mark.parametrize("at", range(len(encode({"a": 1}))))
def test_every_flipped_byte_is_noticed_or_waited_for(at):
    frame = bytearray(encode({"a": 1}))
    frame[at] ^= 0x01
    decoder = Decoder()
    try:
        messages = decoder.feed(bytes(frame))
    except FrameError:
        return
    # Only an increased length looks like a frame that has not fully arrived.
    assert messages == [] and decoder.incomplete and 5 <= at < 9


def test_invalid_frame_is_refused():
    for wrong, why in (
        (b"HTTP/1.1 200", "invalid start of a frame"),
        (b"KBXC\x02\x00\x00\x00\x00", "version 2"),
        (b"KBXC\x01\xff\xff\xff\xff", "too large"),
    ):
        with pytest.raises(FrameError, match=why):
            Decoder().feed(wrong)
    body = msgpack.packb([1])
    framed = b"KBXC\x01" + len(body).to_bytes(4, "big") + body
    with pytest.raises(FrameError, match="must be a msgpack map, got list"):
        Decoder().feed(framed + crc32c(framed).to_bytes(4, "big"))
    with pytest.raises(FrameError, match="too large"):
        encode({"a": bytes(BODY_BYTES_MAX)})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x81",
        b"\x81\xa1a\xa1\xff",
        b"\x81\x01\x02",
        b"\x81\x81\x01\x02\x03",
        b"\x91" * 100_000,
        b"\x81\xa1a" * 100_000,
        b"\xde\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xd6\xff\xff\xff\xff\xff",
        b"\x81\xa1a\xd7\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x80\x80",
    ],
    ids=lambda body: f"{len(body)}-{body[:6].hex()}",
)
def test_body_that_is_no_map_raises_a_frame_error(body):
    """No bytes may raise another error: one message must not end the process that reads it."""
    framed = b"KBXC\x01" + len(body).to_bytes(4, "big") + body
    try:
        messages = Decoder().feed(framed + crc32c(framed).to_bytes(4, "big"))
    except FrameError:
        return
    assert all(isinstance(one, dict) for one in messages)


def test_clipped_text_of_any_length_fits_into_a_frame():
    assert clipped("short") == "short"
    text = clipped("\U0001f600" * 2_000_000)
    assert text.endswith("... (2000000 characters)")
    assert len(encode({"error": text})) < 20_000
