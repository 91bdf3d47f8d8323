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


def load_topic_id(files: Files, directory: str) -> TopicId | None:
    """The topic id of the log in `directory`, None if it is missing.

    Raises CorruptLog for a file that makes no sense, and OSError.
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
    """The topic id of the log in `directory`, written if it is missing, and the file if that is to
    be flushed with the log: what a process wrote that was killed may be in the page cache alone.

    Raises CorruptLog as `load_topic_id`, and for another id than is expected; OSError.
    """
    path = posixpath.join(directory, PARTITION_METADATA)
    topic_id = load_topic_id(files, directory)
    if topic_id is None:
        return expected, None if expected is None else write_topic_id(files, directory, expected)
    if expected is not None and topic_id != expected:
        raise CorruptLog(f"{path} belongs to another topic id than its topic has")
    return topic_id, None if clean else files.open(path)


def write_topic_id(files: Files, directory: str, topic_id: TopicId) -> File:
    """Write the file; returns it open, to be flushed."""
    file = files.open(posixpath.join(directory, PARTITION_METADATA), create=True)
    file.truncate(0)
    file.append(encode_partition_metadata(topic_id))
    return file
