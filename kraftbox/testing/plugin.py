"""The pytest plugin: clusters as fixtures, and their logs in the report of a test that fails.

Settings of pytest.ini, all for the `kafka_cluster` fixture:

    kafka_brokers = 3            kafka_racks = a b c
    kafka_controllers = 3        kafka_configs = (one KEY=VALUE a line)

Under pytest-xdist every worker has a cluster of its own, started when a test first asks for it;
with `--kafka-shared` the workers share one, which the main process starts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from kraftbox.testing.cluster import KafkaCluster

LOG_BYTES_MAX = 20_000
SHARED = "kafka_shared_directory"

Factory: TypeAlias = "Callable[..., KafkaCluster]"

_CLUSTERS = pytest.StashKey["list[KafkaCluster]"]()
_MARKS = pytest.StashKey["dict[str, int]"]()
_SHARED_CLUSTER = pytest.StashKey["KafkaCluster"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "Kafka clusters (kraftbox)")
    group.addoption(
        "--kafka-shared",
        action="store_true",
        help="under pytest-xdist: one `kafka_cluster` for all workers",
    )
    parser.addini("kafka_brokers", "brokers of `kafka_cluster`", default="3")
    parser.addini("kafka_controllers", "controllers of `kafka_cluster`", default="3")
    parser.addini("kafka_racks", "racks of its brokers, in turn", type="args", default=[])
    parser.addini("kafka_configs", "KEY=VALUE for its nodes", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_CLUSTERS] = []


@pytest.fixture(scope="session")
def kafka_cluster_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Factory]:
    """Start clusters: `kafka_cluster_factory(brokers=1, controllers=1, configs={}, racks=[])`.

    Those that are not closed before (they are context managers) are closed with the session.
    """
    from kraftbox.testing.cluster import KafkaCluster

    clusters = request.config.stash[_CLUSTERS]
    made: list[KafkaCluster] = []

    def start(**options: Any) -> KafkaCluster:
        cluster = KafkaCluster.start(tmp_path_factory.mktemp("kafka"), **options)
        clusters.append(cluster)
        made.append(cluster)
        return cluster

    yield start
    for cluster in reversed(made):
        cluster.close()
        clusters.remove(cluster)


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One cluster for the session, three controllers and three brokers unless set otherwise."""
    from kraftbox.testing.cluster import KafkaCluster

    shared = getattr(request.config, "workerinput", {}).get(SHARED)
    if shared is None:
        factory: Factory = request.getfixturevalue("kafka_cluster_factory")
        yield factory(**session_options(request.config))
        return
    cluster = KafkaCluster.attach(shared)
    request.config.stash[_CLUSTERS].append(cluster)
    yield cluster
    request.config.stash[_CLUSTERS].remove(cluster)
    cluster.close()


def session_options(config: pytest.Config) -> dict[str, Any]:
    """What pytest.ini says about `kafka_cluster`. Raises UsageError."""
    try:
        counts = {name: int(config.getini(f"kafka_{name}")) for name in ("brokers", "controllers")}
    except ValueError as error:
        raise pytest.UsageError(f"kafka_brokers, kafka_controllers: {error}") from None
    configs = {}
    for line in config.getini("kafka_configs"):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"kafka_configs: {line!r} is not KEY=VALUE")
        configs[key.strip()] = value.strip()
    return {**counts, "racks": config.getini("kafka_racks"), "configs": configs}


# --- logs of a test that fails ----------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_MARKS] = {
        str(path): path.stat().st_size if path.exists() else 0
        for cluster in item.config.stash[_CLUSTERS]
        for _, path in cluster.logs()
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        marks = item.stash.get(_MARKS, {})
        for cluster in item.config.stash[_CLUSTERS]:
            for node, path in cluster.logs():
                text = _since(str(path), marks.get(str(path), 0))
                if text:
                    report.sections.append((f"log of Kafka node {node.id} ({path})", text))
    return report


def _since(path: str, start: int) -> str:
    """What was logged since the test began, the last of it if it is long."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(start, file.tell() - LOG_BYTES_MAX))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


# --- one cluster for all workers of pytest-xdist ----------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the main process, for each worker before it starts."""
    config: pytest.Config = node.config
    if not config.getoption("--kafka-shared"):
        return
    if _SHARED_CLUSTER not in config.stash:
        import tempfile

        from kraftbox.testing.cluster import KafkaCluster

        place = tempfile.mkdtemp(prefix="kafka-shared-")
        config.stash[_SHARED_CLUSTER] = KafkaCluster.start(place, **session_options(config))
    node.workerinput[SHARED] = str(config.stash[_SHARED_CLUSTER].directory)


def pytest_unconfigure(config: pytest.Config) -> None:
    cluster = config.stash.get(_SHARED_CLUSTER, None)
    if cluster is not None:
        cluster.close()
        shutil.rmtree(cluster.directory, ignore_errors=True)
