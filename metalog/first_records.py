"""The first records of an empty metadata log, as formatting left them in a directory.

The active controller appends them, and a node checks their levels before it takes part. Both, and
`kraftbox storage info`, read them here. The first source that has records is used:

1. The snapshot `00000000000000000000-0000000000.checkpoint` of the metadata log (KIP-1170, Kafka
   4.4 and later). It may also have only control records: then it only names the voters.
2. `bootstrap.checkpoint`, written by Kafka up to 4.3 and by earlier versions of Kraftbox.
3. The defaults of this build.
"""

from __future__ import annotations

import posixpath

from metalog.format import feature_levels, feature_records
from metalog.image.first_records import first_records_problem
from metalog.quorum.log import DIRECTORY_NAME
from metalog.quorum.snapshots import (
    BOOTSTRAP_FILE,
    FIRST_SNAPSHOT,
    SnapshotReader,
    snapshot_name,
)
from metalog.supported import SUPPORTED_FEATURES
from protocol.errors import ProtocolError
from protocol.schema import MetadataRecord
from runtime.errors import StartupRefused
from storage.files.port import Files


def read_first_records(files: Files, metadata_dir: str) -> list[MetadataRecord]:
    """Return the records that the metadata log of this directory begins with if it is empty.

    Raises:
        StartupRefused: a file is damaged, or its records cannot begin a log; the message names it.
    """
    first_snapshot = posixpath.join(metadata_dir, DIRECTORY_NAME, snapshot_name(FIRST_SNAPSHOT))
    for path in (first_snapshot, posixpath.join(metadata_dir, BOOTSTRAP_FILE)):
        if files.exists(path):
            records = _read(files, path)
            if records:
                return records
    return feature_records(feature_levels({}, None, SUPPORTED_FEATURES))


def _read(files: Files, path: str) -> list[MetadataRecord]:
    """Return the metadata records of a whole, valid file. Raises StartupRefused."""
    try:
        reader = SnapshotReader.open(files, path, FIRST_SNAPSHOT)
        for _ in reader.check():
            pass
        records = [record for batch in reader.batches() for record in batch.records]
    except ProtocolError as error:
        raise StartupRefused(f"{error}. {_REMEDY}") from error
    problem = first_records_problem(records) if records else None
    if problem is not None:
        raise StartupRefused(f"snapshot {path} {problem}. {_REMEDY}")
    return records


_REMEDY = (
    "It contains the first records of the cluster's metadata: restore the file, or format the "
    "directory again"
)
