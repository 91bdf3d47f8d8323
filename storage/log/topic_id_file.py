"""partition.metadata: the topic id of a log, which distinguishes topics of one name."""

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


def load_topic_id(files: Files, directory: str) -> TopicId | None:
    """Return the topic id of the log in `directory`; None if it is missing.

    Raises CorruptLog for an invalid file, and OSError.
    """
    path = posixpath.join(directory, PARTITION_METADATA)
    try:
        content = files.read(path)
    except FileNotFoundError:
        return None
    # Shorter than any topic id, or zeros: a crash came before the file's first flush.
    if len(content) < PARTITION_METADATA_BYTES_MIN or not content.strip(b"\0"):
        return None
    try:
        return decode_partition_metadata(content)
    except CorruptCheckpoint as error:
        raise CorruptLog(f"{path}: {error}") from None


def take_topic_id(
    files: Files, directory: str, expected: TopicId | None, *, clean: bool
) -> tuple[TopicId | None, File | None]:
    """Return the topic id of the log in `directory`, and the file if it must be flushed.

    A missing id is written. After an unclean shutdown the file may be in the page cache only, so it
    is returned to be flushed with the log. Raises CorruptLog as `load_topic_id` does, and for
    another id than expected; OSError.
    """
    path = posixpath.join(directory, PARTITION_METADATA)
    topic_id = load_topic_id(files, directory)
    if topic_id is None:
        return expected, None if expected is None else write_topic_id(files, directory, expected)
    if expected is not None and topic_id != expected:
        raise CorruptLog(f"{path} belongs to another topic id than its topic has")
    return topic_id, None if clean else files.open(path)


def write_topic_id(files: Files, directory: str, topic_id: TopicId) -> File:
    """Write the file. Returns it open; the caller must flush it."""
    file = files.open(posixpath.join(directory, PARTITION_METADATA), create=True)
    file.truncate(0)
    file.append(encode_partition_metadata(topic_id))
    return file
