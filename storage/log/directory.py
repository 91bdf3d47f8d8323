"""Identity, lock and folder names of a log directory.

`meta.properties` ties the directory to one cluster and one node, `.lock` to one running process. A
mismatch stops the start with a message that names the directory: starting anyway would mix the data
of two clusters or two nodes.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from protocol.ids import RESERVED_UUIDS, DirectoryId, uuid_from_text, uuid_to_text
from protocol.topic_name import topic_name_problem
from runtime.config.properties import PropertiesError, format_properties, parse_properties
from storage.files import DirectoryLocked, Files
from storage.log.errors import BadLogDirectory, CorruptLog

META_PROPERTIES: Final = "meta.properties"
LOCK_FILE: Final = ".lock"
METADATA_DIRECTORY: Final = "__cluster_metadata-0"
META_VERSION: Final = 1

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
NAME_BYTES_MAX: Final = 255

# <topic>-<partition>.<32 hex digits>-delete, and the same with -stray and -future
_SUFFIXED = re.compile(
    r"(?P<topic>\S+)-(?P<partition>\d+)\.(?P<unique>[0-9a-f]{32})(?P<suffix>-delete|-stray|-future)"
)
_PARTITION_MAX = 2**31 - 1
CLUSTER_ID_BYTES_MAX: Final = 2**15 - 1
"""The longest text that a request can carry: some versions have a 16-bit length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The content of `meta.properties`, version 1."""

    cluster_id: str
    node_id: int
    directory_id: DirectoryId | None
    """None in a file written before directories had ids (KIP-858)."""

    def encode(self) -> bytes:
        values = {"cluster.id": self.cluster_id}
        if self.directory_id is not None:
            values["directory.id"] = uuid_to_text(self.directory_id)
        values["node.id"] = str(self.node_id)
        values["version"] = str(META_VERSION)
        return format_properties(values).encode()

    @classmethod
    def decode(cls, data: bytes) -> MetaProperties:
        """Decode the file. Raises ValueError that names the wrong value."""
        try:
            # Java reads properties files as Latin-1: both servers must read the same id from a
            # file.
            values = parse_properties(data.decode("latin-1"))
        except PropertiesError as error:
            raise ValueError(f"not a properties file: {error}") from None
        version = values.get("version")
        if version is None:
            raise ValueError("it has no version, so it is no node's meta.properties")
        if version != str(META_VERSION):
            raise ValueError(f"version={version}: only version {META_VERSION} is known")
        cluster_id = values.get("cluster.id", "")
        problem = cluster_id_problem(cluster_id)
        if problem is not None:
            raise ValueError(f"cluster.id: {problem}")
        return cls(
            cluster_id=cluster_id,
            node_id=_node_id(values.get("node.id", "")),
            directory_id=_directory_id(values.get("directory.id")),
        )


def cluster_id_problem(cluster_id: str) -> str | None:
    """Return why no cluster can have this id; None if it is valid.

    As in Apache Kafka, an id is any text; it need not be a UUID.
    """
    if not cluster_id:
        return "a cluster id must not be empty"
    try:
        size = len(cluster_id.encode())
    except UnicodeEncodeError:
        return f"the cluster id {cluster_id!r} is not valid Unicode"
    if size > CLUSTER_ID_BYTES_MAX:
        return f"a cluster id may have {CLUSTER_ID_BYTES_MAX} bytes in UTF-8, not {size}"
    return None


def _node_id(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _PARTITION_MAX:
        raise ValueError(f"node.id={text!r} is not a node id")
    return int(text)


def _directory_id(text: str | None) -> DirectoryId | None:
    if text is None:
        return None
    try:
        directory_id = uuid_from_text(text)
    except ValueError as error:
        raise ValueError(f"directory.id: {error}") from None
    if directory_id in RESERVED_UUIDS:
        raise ValueError(f"directory.id={text} is reserved")
    return DirectoryId(directory_id)


def read_meta(files: Files, directory: str) -> MetaProperties | None:
    """Read the directory's `meta.properties`; None if it was never formatted.

    Raises BadLogDirectory for a file that cannot be read.
    """
    path = posixpath.join(directory, META_PROPERTIES)
    try:
        return MetaProperties.decode(files.read(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadLogDirectory(f"{path}: {error}") from None


def write_meta(files: Files, directory: str, meta: MetaProperties) -> None:
    """Write `meta.properties` durably, creating the directory if needed."""
    files.mkdirs(directory)
    files.write_atomic(posixpath.join(directory, META_PROPERTIES), meta.encode())


def check_meta(
    files: Files, directory: str, *, node_id: int, cluster_id: str | None = None
) -> MetaProperties:
    """Return the directory's identity after checking that it matches this node (and cluster).

    Raises BadLogDirectory if the directory is not formatted or belongs to another node or cluster,
    or if the file is unreadable.
    """
    meta = read_meta(files, directory)
    if meta is None:
        raise BadLogDirectory(
            f"{directory} is not formatted: there is no {META_PROPERTIES}. "
            "Format it with `kraftbox storage format`."
        )
    if meta.node_id != node_id:
        raise BadLogDirectory(
            f"{directory} belongs to node {meta.node_id}, this is node {node_id}: "
            f"its {META_PROPERTIES} says so"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise BadLogDirectory(
            f"{directory} belongs to cluster {meta.cluster_id!r}, this node to {cluster_id!r}: "
            f"its {META_PROPERTIES} says so"
        )
    # The writer may have been killed before the file's name was durable; from now on this node
    # relies on the file.
    files.fsync_dir(directory)
    return meta


def lock_directory(files: Files, directory: str) -> Callable[[], None]:
    """Lock the directory for this process. Returns a function that releases the lock.

    Raises BadLogDirectory if another process holds the lock.
    """
    path = posixpath.join(directory, LOCK_FILE)
    try:
        return files.lock(path)
    except DirectoryLocked as error:
        raise BadLogDirectory(
            f"{directory} is in use: {LOCK_FILE} is {error.strerror}. "
            "Stop the other node or choose another directory."
        ) from None


@dataclass(frozen=True, slots=True)
class Folder:
    """Parsed name of a folder in a log directory. `suffix` is empty for a live log."""

    topic: str
    partition: int
    suffix: str = ""


def parse_folder(name: str) -> Folder:
    """Parse a folder name. Raises ValueError if no partition folder can have it."""
    match = _SUFFIXED.fullmatch(name)
    if match is not None:
        # The topic of a `-delete` folder may have been shortened to fit the name.
        return Folder(match["topic"], int(match["partition"]), match["suffix"])
    topic, dash, partition = name.rpartition("-")
    if not dash or not partition.isascii() or not partition.isdigit():
        raise ValueError(f"{name!r} is not named <topic>-<partition>")
    problem = topic_name_problem(topic)
    if problem is not None:
        raise ValueError(f"{name!r}: {problem}")
    if int(partition) > _PARTITION_MAX or (len(partition) > 1 and partition[0] == "0"):
        raise ValueError(f"{name!r}: {partition} is not a partition number")
    return Folder(topic, int(partition))


def split_folder_path(directory: str) -> tuple[str, int]:
    """Return (topic, partition) of `.../<topic>-<partition>`. Raises CorruptLog for other names."""
    topic, _, partition = posixpath.basename(directory).rpartition("-")
    if not topic or not partition.isascii() or not partition.isdigit():
        raise CorruptLog(f"{directory!r} is not named <topic>-<partition>")
    return topic, int(partition)


def folder_name(topic: str, partition: int) -> str:
    """Return the folder name of a partition. Raises ValueError for an illegal topic name (B33)."""
    problem = topic_name_problem(topic)
    if problem is not None:
        raise ValueError(problem)
    if not 0 <= partition <= _PARTITION_MAX:
        raise ValueError(f"{partition} is not a partition number")
    return f"{topic}-{partition}"


def renamed_folder(topic: str, partition: int, unique: bytes, suffix: str) -> str:
    """Return the new name of a renamed folder; the topic is shortened to fit 255 bytes."""
    ending = f"-{partition}.{unique.hex()}{suffix}"
    return topic[: NAME_BYTES_MAX - len(ending)] + ending
