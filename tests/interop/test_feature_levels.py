"""Updates of feature levels, decided by our controller and by Kafka 4.4.0's own class."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from controller.configs.features import FeatureUpdate, decide_update_features
from metalog.image.features import METADATA_VERSION
from protocol.errors import ApiError
from protocol.metadata import FeatureLevelRecord, RegisterControllerRecord
from testkit.kafka.jars import ORACLE, java_program, kafka_libs
from testkit.memory.controller import Cluster, registration

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).parent / "java/FeatureLevels.java"
NODE = 100
ROWS_SHOWN = 20


class Update(NamedTuple):
    """One update of a feature of a cluster at level `start`; `nodes` names its registrations."""

    nodes: str
    start: int
    name: str
    level: int
    upgrade_type: int
    validate_only: bool


class Answer(NamedTuple):
    """A decision: code and message of the reply, and the number of levels that it writes."""

    code: int
    message: str | None
    levels: int


def answers_of_kafka(folder: Path) -> Iterator[tuple[Update, Answer]]:
    """Yield each update of the program, and how Kafka's class decides it."""
    command = java_program(SOURCE, folder, ORACLE)
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in lines.splitlines():
        nodes, start, name, level, upgrade_type, dry, code, message, count = line.split("\t")
        update = Update(nodes, int(start), name, int(level), int(upgrade_type), dry == "true")
        yield update, Answer(int(code), None if message == "null" else message, int(count))


def cluster_of(nodes: str, start: int) -> Cluster:
    """Return a cluster with the registrations that `nodes` names."""
    cluster = Cluster(metadata_version=start)
    if nodes == "old controller":
        old = RegisterControllerRecord.ControllerFeature(
            name=METADATA_VERSION, min_supported_version=7, max_supported_version=21
        )
        cluster.apply([RegisterControllerRecord(controller_id=77, features=[old])])
    elif nodes == "old broker":
        features = registration(1).features
        for feature in features:
            if feature.name == METADATA_VERSION:
                feature.max_supported_version = 21
        if start <= 21:
            cluster.register(1, features=features)
        else:
            cluster.image = Cluster(metadata_version=21).image
            cluster.register(1, features=features)
            level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=start)
            cluster.apply([level])
    elif nodes == "voter without registration":
        cluster.set(static_voters=frozenset({NODE, 78}))
    return cluster


def our_answer(update: Update) -> Answer:
    cluster = cluster_of(update.nodes, update.start)
    wanted = FeatureUpdate(update.name, update.level, update.upgrade_type)
    try:
        decision = decide_update_features(
            cluster.view(), [wanted], validate_only=update.validate_only
        )
    except ApiError as error:
        return Answer(error.code, error.text, 0)
    levels = [one for one in decision.records if isinstance(one, FeatureLevelRecord)]
    assert levels == [FeatureLevelRecord(name=update.name, feature_level=update.level)] * len(
        levels
    ), update
    return Answer(0, None, len(levels))


@pytest.mark.skipif(
    kafka_libs(ORACLE) is None,
    reason="no Java or Maven to get Kafka's jars with (docs/gaps.md)",
)
def test_updates_of_levels_get_the_answers_of_the_oracle(tmp_path: Path) -> None:
    """Codes, messages and numbers of records of all (from, to, type) of metadata.version 7 to 33
    equal Kafka's. A level that the feature has already is written, too.

    So do those of other features, and of clusters with an old broker, with an old controller that
    is no voter (KIP-1312), and with a static voter that has not registered.
    """
    rows = list(answers_of_kafka(tmp_path))
    assert len({update.start for update, _ in rows}) == 27
    found = [
        f"{update}: {ours}, Kafka {theirs}"
        for update, theirs in rows
        if (ours := our_answer(update)) != theirs
    ]
    assert not found, f"{len(found)} differ\n" + "\n".join(found[:ROWS_SHOWN])
