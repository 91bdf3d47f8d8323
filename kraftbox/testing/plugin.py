"""The pytest plugin: clusters as fixtures, and their logs in the report of a test that fails.

Settings of pytest.ini, all for the `kafka_cluster` fixture, and checked at the start:

    kafka_brokers = 3            kafka_racks = a b c
    kafka_controllers = 3        kafka_configs = (one KEY=VALUE a line)

`@pytest.mark.kafka(brokers=3)` of a test, a class or a module wins over them.

Under pytest-xdist every worker has clusters of its own, started when a test first asks for them;
with `--kafka-shared` the workers share one for the tests without a mark, which the main process
starts.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from kraftbox.testing.shape import Shape, WrongSetting, of_marks, of_settings, topic_options

if TYPE_CHECKING:
    from kraftbox.testing.asynchronous import AsyncKafkaCluster
    from kraftbox.testing.cluster import KafkaCluster

LOG_BYTES_MAX = 20_000
SHARED = "kafka_shared_directory"
MARKS = (
    "kafka(brokers=1, controllers=1, combined=False, racks=[], configs={}): its `kafka_cluster`",
    "kafka_topic(partitions=1, replication_factor=-1, configs={}): its `kafka_topic`",
)

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
    parser.addini("kafka_brokers", "brokers of `kafka_cluster`: 1", default="")
    parser.addini(
        "kafka_controllers",
        "controllers of its own; without: a single broker is its controller, several have three",
        default="",
    )
    parser.addini("kafka_racks", "racks of its brokers, in turn", type="args", default=[])
    parser.addini("kafka_configs", "KEY=VALUE for its nodes", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_CLUSTERS] = []
    for line in MARKS:
        config.addinivalue_line("markers", line)
    _check_settings(config)


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
def _kafka_clusters(kafka_cluster_factory: Factory) -> Callable[[Shape], KafkaCluster]:
    """The cluster of each shape, started when it is first asked for."""
    started: dict[Shape, KafkaCluster] = {}

    def cluster(shape: Shape) -> KafkaCluster:
        if shape not in started:
            started[shape] = kafka_cluster_factory(**shape.options())
        return started[shape]

    return cluster


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A running cluster, which all tests that ask for the same share: a single node, unless
    pytest.ini or the test's mark, like `@pytest.mark.kafka(brokers=3)`, say otherwise."""
    from kraftbox.testing.cluster import KafkaCluster

    usual = _shape(request.config, ())
    shape: Shape = getattr(request, "param", usual)
    shared = getattr(request.config, "workerinput", {}).get(SHARED)
    if shared is None or shape != usual:
        clusters: Callable[[Shape], KafkaCluster] = request.getfixturevalue("_kafka_clusters")
        yield clusters(shape)
        return
    cluster = KafkaCluster.attach(shared, shared=True)
    request.config.stash[_CLUSTERS].append(cluster)
    yield cluster
    request.config.stash[_CLUSTERS].remove(cluster)
    cluster.close()


@pytest.fixture(scope="session")
def async_kafka_cluster(kafka_cluster: KafkaCluster) -> AsyncKafkaCluster:
    """`kafka_cluster` for tests that are coroutines: its methods are awaited."""
    from kraftbox.testing.asynchronous import AsyncKafkaCluster

    return AsyncKafkaCluster(kafka_cluster)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_cluster: KafkaCluster) -> Iterator[str]:
    """The name of a topic that is the test's own, and deleted after it.

    `@pytest.mark.kafka_topic(partitions=3, configs={...})` says what it is like.
    """
    from kraftbox.testing.channel import ClusterError

    mark = request.node.get_closest_marker("kafka_topic")
    options = {} if mark is None else topic_options(mark.kwargs)
    topic = kafka_cluster.create_topic(kafka_cluster.new_name(request.node.name), **options)
    yield topic
    # A test may have deleted it, or killed the nodes.
    with contextlib.suppress(ClusterError):
        kafka_cluster.delete_topic(topic)


# --- what the cluster is like -----------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A mark is a parameter of the fixture, so that fixtures of any scope may use it."""
    marks = list(metafunc.definition.iter_markers("kafka"))
    if not marks or "kafka_cluster" not in metafunc.fixturenames:
        return
    shape = _shape(metafunc.config, [(mark.args, mark.kwargs) for mark in reversed(marks)])
    # Its name is no concern of the test's name, where pytest (8.4) can leave it out.
    name: Any = getattr(pytest, "HIDDEN_PARAM", shape.text())
    metafunc.parametrize("kafka_cluster", [shape], indirect=True, ids=[name], scope="session")


def _settings(config: pytest.Config) -> dict[str, Any]:
    """What pytest.ini says. Raises UsageError."""
    try:
        return of_settings(
            config.getini("kafka_brokers"),
            config.getini("kafka_controllers"),
            config.getini("kafka_racks"),
            config.getini("kafka_configs"),
        )
    except WrongSetting as error:
        raise pytest.UsageError(str(error)) from None


def _shape(
    config: pytest.Config, marks: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
) -> Shape:
    """Raises UsageError."""
    try:
        return of_marks(_settings(config), marks)
    except WrongSetting as error:
        raise pytest.UsageError(str(error)) from None


def _check_settings(config: pytest.Config) -> None:
    """Whether nodes would start with what pytest.ini says. Raises UsageError."""
    configs = dict(_shape(config, ()).configs)
    if not configs or hasattr(config, "workerinput"):
        return
    from kraftbox.testing.channel import ClusterError, Helper

    helper = Helper()
    try:
        helper.ask({"do": "check_configs", "configs": configs})
    except ClusterError as error:
        raise pytest.UsageError(f"kafka_configs: {error}") from None
    finally:
        helper.close()


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
        options = _shape(config, ()).options()
        config.stash[_SHARED_CLUSTER] = KafkaCluster.start(place, **options)
    node.workerinput[SHARED] = str(config.stash[_SHARED_CLUSTER].directory)


def pytest_unconfigure(config: pytest.Config) -> None:
    cluster = config.stash.get(_SHARED_CLUSTER, None)
    if cluster is not None:
        cluster.close()
        shutil.rmtree(cluster.directory, ignore_errors=True)
