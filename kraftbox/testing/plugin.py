"""The pytest plugin: clusters as fixtures, healed after each test, with their logs in its report.

Settings in pytest.ini, all for the `kafka_cluster` fixture, are checked at the start:

    kafka_brokers = 3            kafka_racks = a b c
    kafka_controllers = 3        kafka_configs = (one KEY=VALUE a line)

The mark `@pytest.mark.kafka(brokers=3)` of a test, a class or a module overrides them. A wrong mark
fails its own test.

After a test, nodes that it killed, stopped, paused or cut off run again. With `heal=False` in the
mark they stay as they are for the next test with `heal=False`; others start on a whole cluster.

Under pytest-xdist every worker has its own clusters, started when a test first needs them. With
`--kafka-shared` the workers share one cluster for the tests without a mark; the main process starts
it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from kraftbox.testing.shape import (
    Shape,
    WrongSetting,
    heals,
    of_marks,
    of_settings,
    topic_options,
)

if TYPE_CHECKING:
    from kraftbox.testing.asynchronous import AsyncKafkaCluster
    from kraftbox.testing.cluster import KafkaCluster

LOG_BYTES_MAX = 20_000
HEALED = "healed Kafka clusters"
HEALED_MAX = 20
SHARED = "kafka_shared_directory"
MARKS = (
    "kafka(brokers=1, controllers=None, combined=None, racks=[], configs={}, isolate=False, "
    "heal=True): its `kafka_cluster`; several brokers have 3 controllers unless given",
    "kafka_topic(partitions=1, replication_factor=-1, configs={}): its `kafka_topic`",
)

Factory: TypeAlias = "Callable[..., KafkaCluster]"

_CLUSTERS = pytest.StashKey["list[KafkaCluster]"]()
_MARKS = pytest.StashKey["dict[str, int]"]()
_DAMAGE = pytest.StashKey["dict[int, dict[int, str]]"]()
"""The nodes that were broken before a test, by the identity of their cluster."""
_BREAKER = pytest.StashKey["dict[tuple[int, int], str]"]()
"""The tests with `heal=False` that broke a node, by cluster and node."""
_HEALED = pytest.StashKey["list[str]"]()
_CHECKED = pytest.StashKey["dict[tuple[tuple[str, str], ...], WrongSetting | list[str]]"]()
"""The result of the check of each mark's `configs`."""
_NOTES = pytest.StashKey["list[str]"]()
"""Settings in pytest.ini that have no effect."""
_SHARED_CLUSTER = pytest.StashKey["KafkaCluster"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka", "Kafka clusters (kraftbox)")
    group.addoption(
        "--kafka-shared",
        action="store_true",
        help="share one `kafka_cluster` between all workers of pytest-xdist",
    )
    parser.addini("kafka_brokers", "number of brokers of `kafka_cluster`; default: 1", default="")
    parser.addini(
        "kafka_controllers",
        "number of separate controllers; default: none for one broker, which has "
        "both roles, otherwise three",
        default="",
    )
    parser.addini("kafka_racks", "racks, assigned to the brokers in turn", type="args", default=[])
    parser.addini(
        "kafka_configs", "KEY=VALUE of server.properties for all nodes", type="linelist", default=[]
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_CLUSTERS] = []
    config.stash[_BREAKER] = {}
    config.stash[_CHECKED] = {}
    config.stash[_NOTES] = []
    config.pluginmanager.register(_Summary(), "kafka-summary")
    for line in MARKS:
        config.addinivalue_line("markers", line)
    _check_settings(config)


@pytest.fixture(scope="session")
def kafka_cluster_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Factory]:
    """Start clusters: `kafka_cluster_factory(brokers=1, controllers=None, configs={}, racks=[])`.

    The arguments are those of `KafkaCluster.start`: a single broker is its own controller, several
    have three controllers. Clusters are context managers; those that are still open are closed at
    the end of the session.
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
    """Return the cluster of a shape, started at its first use."""
    started: dict[Shape, KafkaCluster] = {}

    def cluster(shape: Shape) -> KafkaCluster:
        if shape not in started:
            started[shape] = kafka_cluster_factory(**shape.options())
        return started[shape]

    return cluster


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A running cluster, shared by all tests that request the same shape.

    The default is a single node; pytest.ini or a mark such as `@pytest.mark.kafka(brokers=3)`
    changes it.
    """
    from kraftbox.testing.cluster import KafkaCluster

    usual = _shape(request.config)
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
    """The `kafka_cluster` for tests that are coroutines: its methods are awaitable."""
    from kraftbox.testing.asynchronous import AsyncKafkaCluster

    return AsyncKafkaCluster(kafka_cluster)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_cluster: KafkaCluster) -> Iterator[str]:
    """The name of a new topic for this test, deleted after it.

    The mark `@pytest.mark.kafka_topic(partitions=3, configs={...})` configures the topic.
    """
    from kraftbox.testing.channel import ClusterError

    mark = request.node.get_closest_marker("kafka_topic")
    options = {} if mark is None else topic_options(mark.args, mark.kwargs)
    topic = kafka_cluster.create_topic(kafka_cluster.new_name(request.node.name), **options)
    yield topic
    # The test may have deleted the topic, or killed the nodes.
    with contextlib.suppress(ClusterError):
        kafka_cluster.delete_topic(topic)


# --- shape of the cluster ---------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn the mark into a parameter of the fixture, so that fixtures of any scope may use it."""
    marks = list(metafunc.definition.iter_markers("kafka"))
    if not marks or "kafka_cluster" not in metafunc.fixturenames:
        return
    try:
        shape = _marked(metafunc.config, marks)
    except WrongSetting:
        return  # pytest_runtest_setup fails this test; the others of the module run.
    # Hide the shape from the test's name if pytest (8.4 or later) can do so.
    name: Any = getattr(pytest, "HIDDEN_PARAM", shape.text())
    metafunc.parametrize("kafka_cluster", [shape], indirect=True, ids=[name], scope="session")


def _settings(config: pytest.Config) -> dict[str, Any]:
    """Return the settings in pytest.ini. Raises UsageError."""
    try:
        return of_settings(
            config.getini("kafka_brokers"),
            config.getini("kafka_controllers"),
            config.getini("kafka_racks"),
            config.getini("kafka_configs"),
        )
    except WrongSetting as error:
        raise pytest.UsageError(str(error)) from None


def _shape(config: pytest.Config) -> Shape:
    """Return the shape without marks. Raises UsageError."""
    try:
        return of_marks(_settings(config), ())
    except WrongSetting as error:
        raise pytest.UsageError(str(error)) from None


def _marked(config: pytest.Config, marks: Sequence[pytest.Mark]) -> Shape:
    """Return the shape for these marks, innermost first. Raises WrongSetting."""
    return of_marks(_settings(config), [(mark.args, mark.kwargs) for mark in reversed(marks)])


def _check_marks(item: pytest.Item) -> None:
    """Fail a test whose mark is wrong, with its file, its line and its name."""
    marks = list(item.iter_markers("kafka"))
    topic = item.get_closest_marker("kafka_topic")
    try:
        if topic is not None:
            topic_options(topic.args, topic.kwargs)
        if marks:
            configs = _marked(item.config, marks).configs
            for note in _accepted(item.config, configs):
                item.warn(pytest.PytestWarning(f"kafka(configs=...): {note}"))
    except WrongSetting as error:
        path, line, name = item.location
        text = f"{path}:{(line or 0) + 1} {name}: {error}"
        raise pytest.fail.Exception(text, pytrace=False) from None


def _accepted(config: pytest.Config, configs: tuple[tuple[str, str], ...]) -> list[str]:
    """Return a line for each setting without effect. Raises WrongSetting.

    A node checks the settings; the result is kept, because it takes a process.
    """
    known = config.stash[_CHECKED]
    if configs and configs not in known:
        from kraftbox.testing.channel import ClusterError, Helper

        helper = Helper()
        try:
            known[configs] = helper.ask({"do": "check_configs", "configs": dict(configs)})
        except ClusterError as error:
            known[configs] = WrongSetting(f"kafka(configs=...): {error}")
        finally:
            helper.close()
    found = known.get(configs, [])
    if isinstance(found, WrongSetting):
        raise found
    return found


def _check_settings(config: pytest.Config) -> None:
    """Check that nodes accept the settings in pytest.ini. Raises UsageError."""
    configs = _shape(config).configs
    if hasattr(config, "workerinput"):
        return
    try:
        config.stash[_NOTES] = _accepted(config, configs)
    except WrongSetting as error:
        text = str(error).replace("kafka(configs=...)", "kafka_configs")
        raise pytest.UsageError(text) from None


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Report settings in pytest.ini that have no effect."""
    return [f"kafka_configs: {note}" for note in config.stash[_NOTES]]


# --- healing ----------------------------------------------------------------------------------


def _heals(item: pytest.Item) -> bool:
    """Return whether the marks of a test let the plugin heal."""
    return heals(mark.kwargs for mark in reversed(list(item.iter_markers("kafka"))))


def _broken(cluster: KafkaCluster) -> dict[int, str]:
    """Return the damage of a cluster's broken nodes; none for one that has been closed."""
    from kraftbox.testing.channel import ClusterError
    from kraftbox.testing.healing import broken

    if not cluster.is_open:
        return {}
    try:
        return broken(cluster.running.states())
    except ClusterError:
        return {}  # The supervisor has ended: the next request of a test fails with the reason.


def _begin_healing(item: pytest.Item) -> None:
    """Note what is broken before a test, after healing what earlier `heal=False` tests left."""
    breakers = item.config.stash[_BREAKER]
    healed = item.stash.setdefault(_HEALED, [])
    damage = item.stash[_DAMAGE] = {}
    for cluster in item.config.stash[_CLUSTERS]:
        cluster.touched.clear()
        found = _broken(cluster)
        if found and _heals(item):
            theirs = {node for node in found if (id(cluster), node) in breakers}
            for repair in cluster.heal(but=found.keys() - theirs) if theirs else ():
                by = breakers.pop((id(cluster), repair.node_id))
                healed.append(f"healed: {repair} by {by} (heal=False)")
                del found[repair.node_id]
        damage[id(cluster)] = found


def _end_healing(item: pytest.Item) -> None:
    """Repair the nodes that this test broke."""
    before = item.stash.get(_DAMAGE, {})
    for cluster in item.config.stash[_CLUSTERS]:
        was = before.get(id(cluster), {})
        broke = [node for node in _broken(cluster) if node not in was]
        if not _heals(item):
            breakers = item.config.stash[_BREAKER]
            breakers.update(dict.fromkeys(((id(cluster), node) for node in broke), item.nodeid))
        elif broke or cluster.is_linked:
            for repair in cluster.heal(but=was.keys()):
                item.stash.setdefault(_HEALED, []).append(f"healed: {repair} by {item.nodeid}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Heal the clusters after the test's own fixtures have ended, which may repair something."""
    try:
        return (yield)
    finally:
        _end_healing(item)


class _Summary:
    """The lines of healed nodes at the end of the run, also of the workers of pytest-xdist."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, text in report.sections:
            if name == HEALED:
                self._lines += text.splitlines()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._lines:
            return
        terminalreporter.section(HEALED, "-")
        for line in self._lines[:HEALED_MAX]:
            terminalreporter.line(line)
        if len(self._lines) > HEALED_MAX:
            terminalreporter.line(f"and {len(self._lines) - HEALED_MAX} more")


# --- logs of a failed test --------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    _check_marks(item)
    _begin_healing(item)
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
    if healed := item.stash.get(_HEALED, []):
        report.sections.append((HEALED, "\n".join(healed)))
        healed.clear()
    if report.failed:
        marks = item.stash.get(_MARKS, {})
        for cluster in item.config.stash[_CLUSTERS]:
            for node, path in cluster.logs():
                text = _since(str(path), marks.get(str(path), 0))
                if text:
                    report.sections.append((f"log of Kafka node {node.id} ({path})", text))
    return report


def _since(path: str, start: int) -> str:
    """Return the log since the test began, at most its last LOG_BYTES_MAX bytes."""
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
    """Start the shared cluster in the main process and pass its directory to each worker."""
    config: pytest.Config = node.config
    if not config.getoption("--kafka-shared"):
        return
    if _SHARED_CLUSTER not in config.stash:
        import tempfile

        from kraftbox.testing.cluster import KafkaCluster

        place = tempfile.mkdtemp(prefix="kafka-shared-")
        options = _shape(config).options()
        config.stash[_SHARED_CLUSTER] = KafkaCluster.start(place, **options)
    node.workerinput[SHARED] = str(config.stash[_SHARED_CLUSTER].directory)


def pytest_unconfigure(config: pytest.Config) -> None:
    cluster = config.stash.get(_SHARED_CLUSTER, None)
    if cluster is not None:
        cluster.close()
        shutil.rmtree(cluster.directory, ignore_errors=True)
