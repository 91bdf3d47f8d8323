"""Formatting of log directories, as `kafka-storage format` does it, as a library.

A directory is formatted when it has a `meta.properties`. That file is written last, so interrupted
formatting is simply repeated. The metadata directory of a controller also gets the first snapshot,
`00000000000000000000-0000000000.checkpoint` (KIP-1170): the records of the first leader and, for a
dynamic quorum (KIP-853), kraft.version and the voter set. Kafka up to 4.3 wrote those records to
`bootstrap.checkpoint`; `metalog/first_records.py` reads both.

A controller's quorum is chosen as follows:
- `controller.quorum.voters` is set: static voters, kraft.version 0, and no other options.
- Otherwise the request has one of three: standalone (this node is the only voter), initial
  controllers (the same list on every node), or no initial controllers (the quorum exists already).
"""

from __future__ import annotations

import posixpath
import random
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from metalog.image.features import (
    FEATURES_BY_NAME,
    KRAFT,
    KRAFT_VERSION,
    METADATA_VERSION,
    SCRAM_LEVEL,
    UnknownVersion,
    metadata_version_at,
    metadata_version_of,
)
from metalog.image.values import VersionRange
from metalog.quorum.core.voters import Endpoints, ReplicaKey, Voter, VoterEndpoint, VoterSet
from metalog.quorum.log import DIRECTORY_NAME
from metalog.quorum.snapshots import (
    FIRST_SNAPSHOT,
    snapshot_name,
    snapshot_parts,
    write_snapshot,
)
from metalog.supported import SUPPORTED_FEATURES
from protocol.ids import RESERVED_UUIDS, DirectoryId, random_uuid, uuid_from_text
from protocol.metadata import FeatureLevelRecord, MetadataRecord
from runtime.clock import Clock
from runtime.config import NodeConfig
from storage.files.port import Files
from storage.log.directory import MetaProperties, cluster_id_problem, read_meta, write_meta
from storage.log.errors import BadLogDirectory


class FormatRefused(Exception):
    """Nothing was written; the message explains what to change."""


class FormatRequest(NamedTuple):
    """The directories to format, and their contents.

    log_dirs: includes `metadata_dir`. endpoints: this node's advertised controller listeners
    (controllers only). features: requested levels by name. release_version: names a Kafka release.
    credentials: SCRAM credentials of users (`metalog/scram.py`).
    """

    node_id: int
    cluster_id: str
    log_dirs: Sequence[str]
    metadata_dir: str
    is_controller: bool
    has_static_voters: bool = False
    endpoints: Endpoints = ()
    standalone: bool = False
    initial_controllers: str | None = None
    no_initial_controllers: bool = False
    features: Mapping[str, int] = {}
    release_version: str | None = None
    credentials: Sequence[MetadataRecord] = ()
    ignore_formatted: bool = False
    listener_name: str = "CONTROLLER"

    @classmethod
    def from_node_config(cls, config: NodeConfig, cluster_id: str) -> FormatRequest:
        """Take values from the node's configuration; the caller sets the others by `_replace`."""
        log_dirs = [config.log_dir]
        if config.metadata_log_dir not in log_dirs:
            log_dirs.append(config.metadata_log_dir)
        return cls(
            node_id=config.node_id,
            cluster_id=cluster_id,
            log_dirs=log_dirs,
            metadata_dir=config.metadata_log_dir,
            is_controller=config.is_controller,
            has_static_voters=bool(config.quorum_voters),
            endpoints=tuple(
                (listener.name, VoterEndpoint(listener.host, listener.port))
                for listener in config.advertised_controller_listeners
            ),
            listener_name=config.controller_listener_names[0],
        )


class FormatResult(NamedTuple):
    """The result of formatting; `skipped` directories were formatted before."""

    formatted: Mapping[str, DirectoryId]
    skipped: Sequence[str]
    features: Mapping[str, int]
    kraft_version: int
    voters: VoterSet


def format_directories(
    request: FormatRequest,
    *,
    files: Files,
    clock: Clock,
    rng: random.Random,
    supported: Mapping[str, VersionRange] = SUPPORTED_FEATURES,
) -> FormatResult:
    """Format the directories that are not formatted yet.

    Raises:
        FormatRefused: the request is invalid, a directory belongs to another node or cluster, or
            its `meta.properties` is unreadable.
        OSError: a directory cannot be read or written.
    """
    _check_cluster_id(request.cluster_id)
    kraft_version = _kraft_version(request)
    features = feature_levels(request.features, request.release_version, supported)
    if request.credentials and features[METADATA_VERSION] < SCRAM_LEVEL:
        raise FormatRefused(
            f"SCRAM credentials need {METADATA_VERSION} {metadata_version_at(SCRAM_LEVEL).name} "
            "or later"
        )
    first_records = [*feature_records(features), *request.credentials]
    fresh, skipped = _unformatted(request, files)
    metadata_id = DirectoryId(random_uuid(rng))
    voters = _voters(request, metadata_id)
    own = voters.get(request.node_id)
    if own is not None:
        metadata_id = DirectoryId(own.key.directory_id)
    formatted: dict[str, DirectoryId] = {}
    for directory in fresh:
        is_metadata = directory == request.metadata_dir
        directory_id = metadata_id if is_metadata else DirectoryId(random_uuid(rng))
        files.mkdirs(directory)
        if is_metadata and request.is_controller:
            _write_first_snapshot(files, clock, directory, first_records, kraft_version, voters)
        meta = MetaProperties(
            cluster_id=request.cluster_id, node_id=request.node_id, directory_id=directory_id
        )
        write_meta(files, directory, meta)
        formatted[directory] = directory_id
    return FormatResult(formatted, skipped, features, kraft_version, voters)


def feature_levels(
    requested: Mapping[str, int], release: str | None, supported: Mapping[str, VersionRange]
) -> dict[str, int]:
    """Return the levels above 0 to write, for all features but kraft.version.

    A feature that `requested` does not contain gets the release's default, up to its `supported`
    level.

    Raises:
        FormatRefused: a level is unsupported or lacks a dependency.
    """
    if release is not None and METADATA_VERSION in requested:
        raise FormatRefused(f"give the release or --feature {METADATA_VERSION}, not both")
    level = _metadata_version(requested.get(METADATA_VERSION), release, supported)
    levels = {METADATA_VERSION: level}
    for name, feature in sorted(FEATURES_BY_NAME.items()):
        if name != KRAFT_VERSION and name in supported:
            levels[name] = min(feature.default_level(level), supported[name].max_level)
    for name, wanted in requested.items():
        if name not in supported:
            raise FormatRefused(
                f"unknown feature {name}; supported: {', '.join(sorted(supported))}"
            )
        low, high = supported[name]
        if not low <= wanted <= high:
            raise FormatRefused(f"{name} must be from {low} to {high}, not {wanted}")
        if name not in (METADATA_VERSION, KRAFT_VERSION):
            levels[name] = wanted
    _check_dependencies(levels)
    return {name: level for name, level in levels.items() if level}


def feature_records(levels: Mapping[str, int]) -> list[MetadataRecord]:
    """Return the records of the levels: the metadata version first, the others by name."""
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in names]


def _metadata_version(
    requested: int | None, release: str | None, supported: Mapping[str, VersionRange]
) -> int:
    low, high = supported[METADATA_VERSION]
    try:
        if release is not None:
            level = metadata_version_of(release).level
        else:
            level = metadata_version_at(high if requested is None else requested).level
    except UnknownVersion as error:
        raise FormatRefused(str(error)) from None
    if not low <= level <= high:
        raise FormatRefused(
            f"{METADATA_VERSION} must be from {low} ({metadata_version_at(low).name}) "
            f"to {high} ({metadata_version_at(high).name}), not {level}"
        )
    return level


def _check_dependencies(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        if name == METADATA_VERSION:
            continue
        for other, least in FEATURES_BY_NAME[name].needs.get(level, {}).items():
            if levels.get(other, 0) < least:
                raise FormatRefused(f"{name}={level} needs {other} of at least {least}")


def _check_cluster_id(cluster_id: str) -> None:
    problem = cluster_id_problem(cluster_id)
    if problem is not None:
        raise FormatRefused(problem)


def _kraft_version(request: FormatRequest) -> int:
    """Return 0 for static voters, 1 for a quorum with its voters in the log."""
    ways = {
        "--standalone": request.standalone,
        "--initial-controllers": request.initial_controllers is not None,
        "--no-initial-controllers": request.no_initial_controllers,
    }
    chosen = [name for name, given in ways.items() if given]
    if len(chosen) > 1:
        raise FormatRefused(f"give only one of {' and '.join(chosen)}")
    if request.standalone and not request.is_controller:
        raise FormatRefused("--standalone is only for a controller")
    requested = request.features.get(KRAFT_VERSION)
    if request.has_static_voters:
        if request.standalone or request.initial_controllers is not None:
            raise FormatRefused(
                f"{chosen[0]} creates a dynamic quorum, but controller.quorum.voters "
                "is set: remove it and set controller.quorum.bootstrap.servers, or "
                f"format without {chosen[0]}"
            )
        if requested:
            raise FormatRefused(
                f"{KRAFT_VERSION}={requested} needs a dynamic quorum, but controller.quorum.voters "
                f"is set"
            )
        return 0
    if request.is_controller and not chosen:
        raise FormatRefused(
            "controller.quorum.voters is not set: format this controller with one of "
            + ", ".join(ways)
        )
    if requested == 0 and chosen:
        raise FormatRefused(
            f"{KRAFT_VERSION}=0 has static voters, but {chosen[0]} creates a dynamic quorum"
        )
    if requested is not None and requested > KRAFT.max_level:
        raise FormatRefused(f"{KRAFT_VERSION} must be from 0 to {KRAFT.max_level}, not {requested}")
    return 1 if chosen else 0


def _unformatted(request: FormatRequest, files: Files) -> tuple[list[str], list[str]]:
    fresh: list[str] = []
    skipped: list[str] = []
    for directory in request.log_dirs:
        try:
            meta = read_meta(files, directory)
        except BadLogDirectory as error:
            raise FormatRefused(str(error)) from error
        if meta is None:
            fresh.append(directory)
            continue
        if meta.cluster_id != request.cluster_id or meta.node_id != request.node_id:
            raise FormatRefused(
                f"{directory} is formatted for node {meta.node_id} of cluster "
                f"{meta.cluster_id!r}, not for node {request.node_id} of {request.cluster_id!r}"
            )
        if not request.ignore_formatted:
            raise FormatRefused(f"{directory} is already formatted; --ignore-formatted skips it")
        skipped.append(directory)
    return fresh, skipped


def _voters(request: FormatRequest, directory_id: DirectoryId) -> VoterSet:
    if request.standalone:
        key = ReplicaKey(request.node_id, directory_id)
        return VoterSet([Voter(key, request.endpoints[:1], 0, KRAFT.max_level)])
    if request.initial_controllers is None:
        return VoterSet()
    return parse_initial_controllers(request.initial_controllers, request.listener_name)


_INITIAL_CONTROLLER = re.compile(r"(\d+)@\[?([^\]]+?)\]?:(\d+):(.+)")


def parse_initial_controllers(text: str, listener_name: str) -> VoterSet:
    """Parse `id@host:port:directory-id,...` as voters. Raises FormatRefused."""
    voters: list[Voter] = []
    for entry in (part.strip() for part in text.split(",")):
        match = _INITIAL_CONTROLLER.fullmatch(entry)
        if match is None or int(match[3]) > 65535:
            raise FormatRefused(f"expected id@host:port:directory-id, got {entry!r}")
        try:
            directory_id = uuid_from_text(match[4])
        except ValueError as error:
            raise FormatRefused(f"{entry!r}: {error}") from None
        if directory_id in RESERVED_UUIDS:
            raise FormatRefused(f"{entry!r}: reserved directory id")
        key = ReplicaKey(int(match[1]), directory_id)
        for other in voters:
            if key.id == other.id or directory_id == other.key.directory_id:
                raise FormatRefused(f"{entry!r}: duplicate id or directory id of {other.key}")
        endpoint = VoterEndpoint(match[2], int(match[3]))
        voters.append(Voter(key, ((listener_name, endpoint),), 0, KRAFT.max_level))
    return VoterSet(voters)


def _write_first_snapshot(
    files: Files,
    clock: Clock,
    directory: str,
    records: Sequence[MetadataRecord],
    kraft_version: int,
    voters: VoterSet,
) -> None:
    """Write the first snapshot (KIP-1170), which nothing may change, so it is read-only."""
    now_ms = clock.now_ms()
    folder = posixpath.join(directory, DIRECTORY_NAME)
    files.mkdirs(folder)
    parts = snapshot_parts(
        FIRST_SNAPSHOT,
        [(record, 0) for record in records],
        last_contained_timestamp_ms=now_ms,
        timestamp_ms=now_ms,
        voters=voters or None,
        kraft_version=kraft_version,
    )
    path = posixpath.join(folder, snapshot_name(FIRST_SNAPSHOT))
    write_snapshot(files, path, parts)
    files.make_read_only(path)
