"""Finalised feature levels of a log directory, read before the node opens it.

Finalised levels determine how the other records were written. A node that does not know a level
must not take part, not even by the record that a new leader writes first. So the levels are checked
before the log is opened. They are read from the files as they are: the latest snapshot, then the
log after it. Without any metadata, the levels are those that formatting left for the first leader
(`first_records`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from itertools import pairwise

from metalog.first_records import read_first_records
from metalog.image.features import (
    METADATA_VERSION,
    METADATA_VERSIONS,
    can_lower,
    metadata_version_at,
)
from metalog.image.values import VersionRange
from metalog.quorum.batches import read_batches
from metalog.quorum.log import DIRECTORY_NAME
from metalog.quorum.snapshots import FIRST_SNAPSHOT, snapshot_name, whole_snapshots
from metalog.supported import Unsupported, unsupported
from protocol.batch.header import iter_batches
from protocol.errors import ProtocolError
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.schema import MetadataRecord
from runtime.errors import StartupRefused
from storage.files.port import Files

_LOG_NAME_CHARS = 24
_EVERY_FEATURE = b".version"
"""Part of every feature's name: batches without it need not be decoded."""


def finalised_features(files: Files, metadata_dir: str) -> dict[str, int]:
    """Return the finalised levels above 0, by feature.

    Raises:
        StartupRefused: the log is empty, and the file with its first records is damaged.
    """
    directory = posixpath.join(metadata_dir, DIRECTORY_NAME)
    levels: dict[str, int] = {}
    if files.isdir(directory):
        _follow_log(files, directory, levels)
    if not levels:
        _apply(levels, read_first_records(files, metadata_dir))
    return {name: level for name, level in levels.items() if level}


def check_features(
    levels: Mapping[str, int], supported: Mapping[str, VersionRange], where: str
) -> None:
    """Check the levels of the metadata in `where`.

    Raises:
        StartupRefused: a level is not supported; the message has a possible remedy for each.
    """
    beyond = list(unsupported(levels, supported))
    if beyond:
        raise StartupRefused(
            f"{where} has finalised features that are not supported: "
            f"{', '.join(map(str, beyond))}. {' '.join(map(_remedy, beyond))}"
        )


def _remedy(one: Unsupported) -> str:
    name, level, _, high = one
    if level > high and can_lower(name, level, high):
        return (
            f"Lower {name} on the node that wrote it (kafka-features downgrade --feature "
            f"{name}={high}), stop it, and start again."
        )
    needed = f"{name} {level}"
    if name == METADATA_VERSION:
        known = any(version.level == level for version in METADATA_VERSIONS)
        needed += f" ({metadata_version_at(level).name})" if known else ""
    return (
        f"No downgrade of {name} from {level} to {high} is possible; start a release of Kraftbox "
        f"that supports {needed}."
    )


def _follow_log(files: Files, directory: str, levels: dict[str, int]) -> None:
    start = 0
    snapshots, _ = whole_snapshots(files, directory)
    # The records of the first snapshot are not in the log before a controller appends them; one of
    # Kafka 4.3 never does.
    if snapshots and snapshots[-1] != FIRST_SNAPSHOT:
        start = snapshots[-1].offset
        _collect(levels, files.read(posixpath.join(directory, snapshot_name(snapshots[-1]))), 0)
    segments = sorted(
        name
        for name in files.listdir(directory)
        if name.endswith(".log") and len(name) == _LOG_NAME_CHARS
    )
    for name, following in pairwise([*segments, None]):
        assert name is not None
        if following is None or int(following[:-4]) > start:
            _collect(levels, files.read(posixpath.join(directory, name)), start)


def _collect(levels: dict[str, int], data: bytes, start: int) -> None:
    """Add the levels that `data` sets at offsets from `start` on, up to the first damaged batch.

    Opening the log later reports the damage.
    """
    try:
        for header, at in iter_batches(data):
            end = at + header.size_bytes
            if header.last_offset < start or data.find(_EVERY_FEATURE, at, end) < 0:
                continue
            for batch in read_batches(data[at:end]):
                _apply(levels, batch.records)
    except ProtocolError:
        return


def _apply(levels: dict[str, int], records: tuple[object, ...] | list[MetadataRecord]) -> None:
    for record in records:
        if isinstance(record, FeatureLevelRecord):
            levels[record.name] = record.feature_level
