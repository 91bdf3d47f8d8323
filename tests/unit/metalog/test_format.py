from __future__ import annotations

import random
from typing import Any

import pytest

from metalog.first_records import read_first_records
from metalog.format import (
    FormatRefused,
    FormatRequest,
    FormatResult,
    feature_levels,
    feature_records,
    format_directories,
    parse_initial_controllers,
)
from metalog.image.features import FEATURES, METADATA_VERSION
from metalog.image.values import VersionRange
from metalog.quorum.core.voters import ReplicaKey, VoterEndpoint
from metalog.quorum.snapshots import FIRST_SNAPSHOT, SnapshotReader
from metalog.supported import SUPPORTED_FEATURES
from protocol.ids import uuid_from_text
from protocol.metadata import FeatureLevelRecord, UserScramCredentialRecord
from runtime.clock import ManualClock
from storage.files import MemoryFiles
from storage.log.directory import read_meta

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
DIRECTORY = "JEXY6aqzQY-32P5TStzaFg"
KAFKA = {f.name: VersionRange(0, f.max_level) for f in FEATURES} | {
    METADATA_VERSION: VersionRange(7, 30)
}
CREDENTIALS = [
    UserScramCredentialRecord(name=name, mechanism=1, iterations=4096) for name in ("b", "a")
]
FIRST = "/data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def request(**changes: Any) -> FormatRequest:
    base = FormatRequest(
        node_id=1,
        cluster_id=CLUSTER,
        log_dirs=["/data"],
        metadata_dir="/data",
        is_controller=True,
        endpoints=(("CONTROLLER", VoterEndpoint("localhost", 9093)),),
    )
    return base._replace(**changes)


def run(files: MemoryFiles, asked: FormatRequest, supported: Any = KAFKA) -> FormatResult:
    return format_directories(
        asked, files=files, clock=ManualClock(), rng=random.Random(3), supported=supported
    )


def test_standalone_is_a_quorum_of_one() -> None:
    files = MemoryFiles()
    result = run(files, request(standalone=True))
    meta = read_meta(files, "/data")
    assert meta is not None and (meta.node_id, meta.cluster_id) == (1, CLUSTER)
    assert meta.directory_id == result.formatted["/data"]
    reader = SnapshotReader.open(files, FIRST, FIRST_SNAPSHOT)
    assert reader.kraft_version == 1 and reader.voters == result.voters
    (voter,) = result.voters
    assert voter.key == ReplicaKey(1, result.formatted["/data"])
    assert voter.endpoint("CONTROLLER") == VoterEndpoint("localhost", 9093)
    assert (voter.kraft_version_min, voter.kraft_version_max) == (0, 1)
    assert list(reader.records()) == feature_records(result.features)


def test_static_voters_are_not_in_the_first_snapshot() -> None:
    """KIP-1170: it has the first records, as for every kind of quorum."""
    files = MemoryFiles()
    result = run(files, request(has_static_voters=True))
    reader = SnapshotReader.open(files, FIRST, FIRST_SNAPSHOT)
    assert (result.kraft_version, reader.kraft_version, reader.voters) == (0, 0, None)
    assert list(reader.records()) == feature_records(result.features)


def test_initial_controllers_give_this_node_its_directory_id() -> None:
    files = MemoryFiles()
    listed = f"1@a:9093:{DIRECTORY},2@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A"
    result = run(files, request(initial_controllers=listed))
    assert result.formatted["/data"] == uuid_from_text(DIRECTORY)
    assert SnapshotReader.open(files, FIRST, FIRST_SNAPSHOT).voters == result.voters
    second = result.voters.get(2)
    assert second is not None and second.endpoint() == VoterEndpoint("::1", 9094)


def test_no_initial_controllers_leaves_the_voters_to_be_found() -> None:
    files = MemoryFiles()
    result = run(files, request(no_initial_controllers=True))
    assert result.kraft_version == 1 and not result.voters
    reader = SnapshotReader.open(files, FIRST, FIRST_SNAPSHOT)
    assert (reader.kraft_version, reader.voters) == (1, None)
    assert list(reader.records()) == feature_records(result.features)


def test_a_broker_gets_only_its_properties() -> None:
    """First records are for controllers; a broker fetches the log."""
    files = MemoryFiles()
    assert run(files, request(is_controller=False)).formatted
    assert files.listdir("/data") == ["meta.properties"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "one of --standalone, --initial-controllers, --no-initial-controllers"),
        ({"standalone": True, "no_initial_controllers": True}, "only one of"),
        ({"standalone": True, "is_controller": False}, "only for a controller"),
        ({"standalone": True, "has_static_voters": True}, "controller.quorum.voters is set"),
        ({"standalone": True, "features": {"kraft.version": 0}}, "static voters"),
        ({"standalone": True, "features": {"kraft.version": 2}}, "must be from 0 to 1"),
        ({"has_static_voters": True, "features": {"kraft.version": 1}}, "dynamic quorum"),
        ({"standalone": True, "features": {"foo": 1}}, "unknown feature foo"),
        ({"standalone": True, "features": {"group.version": 9}}, "must be from 0 to 1, not 9"),
        ({"standalone": True, "features": {METADATA_VERSION: 31}}, "7 .3.3-IV3. to 30"),
        ({"standalone": True, "features": {METADATA_VERSION: 99}}, "unknown metadata.version"),
        ({"standalone": True, "release_version": "2.8"}, "unknown metadata.version"),
        (
            {"standalone": True, "release_version": "3.9", "features": {METADATA_VERSION: 20}},
            "not both",
        ),
        (
            {
                "standalone": True,
                "features": {METADATA_VERSION: 20, "eligible.leader.replicas.version": 1},
            },
            "needs metadata.version of at least 23",
        ),
        ({"standalone": True, "cluster_id": ""}, "must not be empty"),
        ({"standalone": True, "cluster_id": "x" * 32768}, "may have 32767 bytes"),
        ({"initial_controllers": "1@host:9093"}, "expected id@host:port:directory-id"),
        ({"initial_controllers": "1@host:99999:x"}, "expected id@host:port:directory-id"),
        ({"initial_controllers": "1@host:1:AAAAAAAAAAAAAAAAAAAAAA"}, "reserved"),
        ({"initial_controllers": "1@host:1:short"}, "uuid"),
        (
            {"initial_controllers": f"1@h:1:{DIRECTORY},1@h:2:MvDxzVmcRsaTz33bUuRU6A"},
            "duplicate id",
        ),
    ],
)
def test_refusals_write_nothing(changes: dict[str, Any], message: str) -> None:
    files = MemoryFiles()
    with pytest.raises(FormatRefused, match=message):
        run(files, request(**changes))
    assert not files.exists("/data/meta.properties")


def test_credentials_follow_the_levels_in_the_first_snapshot() -> None:
    """KIP-1170: the first records are features, then SCRAM credentials in the given order."""
    files = MemoryFiles()
    result = run(files, request(standalone=True, credentials=CREDENTIALS))
    reader = SnapshotReader.open(files, FIRST, FIRST_SNAPSHOT)
    assert list(reader.records()) == [*feature_records(result.features), *CREDENTIALS]


def test_credentials_below_their_level_are_refused() -> None:
    """3.5-IV2 has the first records of SCRAM (KIP-900)."""
    files = MemoryFiles()
    old = request(standalone=True, credentials=CREDENTIALS, features={METADATA_VERSION: 10})
    with pytest.raises(FormatRefused, match="need metadata.version 3.5-IV2 or later"):
        run(files, old)
    assert not files.exists("/data/meta.properties")
    assert run(files, old._replace(features={METADATA_VERSION: 11})).formatted


@pytest.mark.parametrize("cluster_id", ["a,b,c", '"MkU3OEVBNTcwNTJENDM2Qg"', "my cluster", "a:b"])
def test_format_takes_any_text_as_cluster_id(cluster_id: str) -> None:
    """Public compose files have such ids, and Kafka 4.3.1 formats with each of them."""
    files = MemoryFiles()
    run(files, request(standalone=True, cluster_id=cluster_id))
    meta = read_meta(files, "/data")
    assert meta is not None and meta.cluster_id == cluster_id


def test_formatting_again_is_refused_or_skipped() -> None:
    files = MemoryFiles()
    asked = request(standalone=True)
    run(files, asked)
    before = files.read("/data/meta.properties")
    with pytest.raises(FormatRefused, match="already formatted"):
        run(files, asked)
    result = run(files, asked._replace(ignore_formatted=True))
    assert result.skipped == ["/data"] and not result.formatted
    assert files.read("/data/meta.properties") == before
    for other in ({"cluster_id": "another"}, {"node_id": 2}):
        with pytest.raises(FormatRefused, match="is formatted for node 1"):
            run(files, asked._replace(ignore_formatted=True, **other))


def test_an_interrupted_formatting_is_done_again() -> None:
    files = MemoryFiles()
    asked = request(standalone=True)
    run(files, asked)
    files.unlink("/data/meta.properties")
    assert run(files, asked).formatted


def test_bootstrap_records_of_a_release() -> None:
    files = MemoryFiles()
    run(files, request(standalone=True))
    levels = [(r.name, r.feature_level) for r in read_first_records(files, "/data")]
    assert levels == [
        ("metadata.version", 30),
        ("eligible.leader.replicas.version", 1),
        ("group.version", 1),
        ("share.version", 1),
        ("streams.version", 1),
        ("transaction.version", 2),
    ]
    assert feature_levels({}, "3.9", KAFKA) == {METADATA_VERSION: 21}
    assert feature_levels({"group.version": 0}, "4.0", KAFKA) == {
        METADATA_VERSION: 25,
        "transaction.version": 2,
    }


def test_eligible_leader_replicas_are_on_in_new_clusters_of_4_1_and_later() -> None:
    files = MemoryFiles()
    run(files, request(standalone=True), SUPPORTED_FEATURES)
    assert [(r.name, r.feature_level) for r in read_first_records(files, "/data")] == [
        ("metadata.version", 33),
        ("eligible.leader.replicas.version", 1),
    ]
    off = {"eligible.leader.replicas.version": 0}
    assert feature_levels(off, None, SUPPORTED_FEATURES) == {METADATA_VERSION: 33}
    assert feature_levels({}, "4.0", SUPPORTED_FEATURES) == {METADATA_VERSION: 25}
    assert feature_levels({}, "4.1", SUPPORTED_FEATURES) == {
        METADATA_VERSION: 27,
        "eligible.leader.replicas.version": 1,
    }


def test_only_what_is_built_is_written() -> None:
    files = MemoryFiles()
    supported = {METADATA_VERSION: VersionRange(7, 30), "kraft.version": VersionRange(0, 1)}
    run(files, request(standalone=True), supported)
    assert read_first_records(files, "/data") == [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)
    ]


def test_the_metadata_directory_may_be_another() -> None:
    files = MemoryFiles()
    result = run(files, request(standalone=True, log_dirs=["/logs", "/data"]))
    assert set(result.formatted) == {"/logs", "/data"}
    assert files.exists(FIRST)
    assert not files.exists(FIRST.replace("/data", "/logs"))
    assert not files.exists("/data/bootstrap.checkpoint")


def test_listener_names_of_initial_controllers() -> None:
    voters = parse_initial_controllers(f"7@h:1:{DIRECTORY}", "CTRL")
    assert voters.ids == (7,)
    assert next(iter(voters)).endpoint("CTRL") == VoterEndpoint("h", 1)
