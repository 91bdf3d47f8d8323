"""partition.metadata: which topic a log belongs to, across deletions and new topics of its name."""

from __future__ import annotations

import posixpath

from protocol.ids import TopicId
from storage.files import File, Files
from storage.log.checkpoints import (
    PARTITION_METADATA,
    PARTITION_METADATA_BYTES_MIN,
    CorruptCheckpoint,
    decode_partition_metadata,
    encode_partition_metadata,
)
from storage.log.errors import CorruptLog


def load_topic_id(
    files: Files, directory: str, expected: TopicId | None
) -> tuple[TopicId | None, bool]:
    """The topic id of the log in `directory`, and whether `expected` is to be written there.

    Raises CorruptLog for a file that says something else, or nothing that makes sense.
    """
    path = posixpath.join(directory, PARTITION_METADATA)
    try:
        content = files.read(path)
    except FileNotFoundError:
        content = b""
    # Shorter than any topic id, or zeros: a crash came before the file's first flush.
    if len(content) < PARTITION_METADATA_BYTES_MIN or not content.strip(b"\0"):
        return expected, expected is not None
    try:
        topic_id = decode_partition_metadata(content)
    except CorruptCheckpoint as error:
        raise CorruptLog(f"{path}: {error}") from None
    if expected is not None and topic_id != expected:
        raise CorruptLog(f"{path} belongs to another topic id than its topic has")
    return topic_id, False


def take_topic_id(
    files: Files, directory: str, expected: TopicId | None, *, clean: bool
) -> tuple[TopicId | None, File | None]:
    """The topic id of the log in `directory`, written if it is missing, and the file if that is to
    be flushed with the log: what a process wrote that was killed may be in the page cache alone.

    Raises CorruptLog as `load_topic_id`, and OSError.
    """
    topic_id, must_write = load_topic_id(files, directory, expected)
    if must_write and expected is not None:
        return expected, write_topic_id(files, directory, expected)
    if clean or topic_id is None:
        return topic_id, None
    return topic_id, files.open(posixpath.join(directory, PARTITION_METADATA))


def write_topic_id(files: Files, directory: str, topic_id: TopicId) -> File:
    """Write the file; returns it open, to be flushed."""
    file = files.open(posixpath.join(directory, PARTITION_METADATA), create=True)
    file.truncate(0)
    file.append(encode_partition_metadata(topic_id))
    return file
