"""The pytest plugin as its users have it: the wheel, in a project of their own.

The project has packages called `storage` and `protocol`, and its tests are the example of
docs/testing.md, word for word.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.e2e.commands import ended, run
from tests.e2e.conftest import THEIR_PACKAGES, Installed

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).parents[2]
NEEDED = ("pytest", "pytest-xdist", "confluent-kafka", "mypy")
ONE_OF_EACH = ("kafka_brokers = 1", "kafka_controllers = 1")

# Further assertions about the process that runs their tests.
_THEIRS = """
import sys

import protocol
import storage


def test_packages_are_theirs(kafka_cluster):
    assert (storage.OWNER, protocol.OWNER) == ("the project", "the project")
    ours = {name.split(".")[0] for name in sys.modules}
    assert not ours & {"broker", "controller", "metalog", "runtime"}
    assert "kraftbox.node" not in sys.modules


def test_six_nodes(kafka_cluster_factory):
    with kafka_cluster_factory(brokers=3, controllers=3) as cluster:
        assert len(cluster.brokers) == len(cluster.controllers) == 3
"""


def example() -> str:
    """Return the tests that docs/testing.md shows."""
    text = (REPOSITORY / "docs/testing.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(import pytest.*?|# test_.*?|from .*?)```", text, re.DOTALL)
    assert found is not None, "docs/testing.md shows no test"
    return found[1]


@pytest.fixture(scope="module")
def project(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the interpreter of an environment with our wheel, and the folder of a user's
    project."""
    run(installed.python, "-m", "pip", "install", "-q", *NEEDED)
    theirs = tmp_path_factory.mktemp("theirs")
    for name in THEIR_PACKAGES:
        (theirs / name).mkdir()
        (theirs / name / "__init__.py").write_text("OWNER = 'the project'\n")
    return installed.python, theirs


def write(folder: Path, name: str, text: str, *settings: str) -> None:
    """Make `text` the project's only tests, and `settings` the whole pytest.ini.

    The project is shared, and an earlier test must not determine what a later one runs.
    """
    for old in folder.glob("test_*.py"):
        old.unlink()
    (folder / name).write_text(text)
    lines = ["[pytest]", "pythonpath = .", "filterwarnings = error", *settings]
    (folder / "pytest.ini").write_text("\n".join(lines) + "\n")


def test_the_example_of_the_readme(project: tuple[Path, Path]) -> None:
    python, folder = project
    write(folder, "test_example.py", example())
    (folder / "test_theirs.py").write_text(_THEIRS)
    done = ended(python, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert example().count("def test_") == 7
    assert "9 passed" in done.stdout


def test_logs_of_the_nodes_are_in_the_report_of_a_test_that_fails(
    project: tuple[Path, Path],
) -> None:
    python, folder = project
    text = """
        def test_passes(kafka_cluster):
            kafka_cluster.create_topic("first")

        def test_fails(kafka_cluster):
            kafka_cluster.node(1).restart()
            assert False, "on purpose"
    """
    settings = (*ONE_OF_EACH, "kafka_configs =", "    num.partitions=3")
    write(folder, "test_logs.py", textwrap.dedent(text), *settings)
    done = ended(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder)
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout
    assert "log of Kafka node 1 (" in done.stdout
    # The node's log of this test, not of those before.
    logged = done.stdout.partition("log of Kafka node 1 (")[2].partition("- log of ")[0]
    assert "Stopped node_id=1" in logged and "Transitioning from RECOVERY to RUNNING" in logged
    assert logged.count("Transitioning") == 1


def test_mypy_knows_the_types(project: tuple[Path, Path]) -> None:
    """The project is checked strictly, and its packages have the names of ours."""
    python, folder = project
    text = """
        import pytest
        from kraftbox.testing import AsyncKafkaCluster, KafkaCluster, Record

        @pytest.mark.kafka(brokers=1)
        def test_it(kafka_cluster: KafkaCluster, kafka_topic: str) -> None:
            records: list[Record] = kafka_cluster.produce(kafka_topic, b"one")
            reveal_type(records[0].offset)

        async def test_that(async_kafka_cluster: AsyncKafkaCluster) -> None:
            reveal_type(await async_kafka_cluster.leader("t"))
            await async_kafka_cluster.produce("t", 1)
    """
    write(folder, "test_typed.py", textwrap.dedent(text))
    done = ended(python, "-m", "mypy", "--strict", "--no-incremental", "test_typed.py", cwd=folder)
    lines = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    assert lines[0] == 'note: Revealed type is "int | None"', done.stdout + done.stderr
    assert lines[1].endswith('AsyncKafkaNode"')
    assert "incompatible type" in lines[2] and len(lines) == 4


@pytest.mark.parametrize("shared", [False, True], ids=["each", "shared"])
def test_workers_of_xdist(project: tuple[Path, Path], shared: bool) -> None:
    """Each worker has a cluster, or all share one; all clusters are gone in the end."""
    python, folder = project
    text = """
        import pathlib

        import pytest
        from kraftbox.testing import ClusterError

        SHARED = %s

        @pytest.mark.parametrize("number", range(6))
        def test_it(kafka_cluster, worker_id, number):
            assert worker_id.startswith("gw")
            topic = kafka_cluster.create_topic(partitions=2)
            if number == 0 and SHARED:
                with pytest.raises(ClusterError, match="other workers use this cluster"):
                    kafka_cluster.reset()
            assert len(kafka_cluster.partitions(topic)) == 2
            seen = pathlib.Path(__file__).with_name("seen")
            seen.mkdir(exist_ok=True)
            (seen / f"{kafka_cluster.cluster_id}_{worker_id}").write_text(
                str(kafka_cluster.supervised()["pid"])
            )
    """
    write(folder, "test_workers.py", textwrap.dedent(text) % shared, *ONE_OF_EACH)
    options = ["--kafka-shared"] if shared else []
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist=each")
    done = ended(python, *command, *options, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = list((folder / "seen").iterdir())
    assert len(seen) == 2
    assert len({path.name.rpartition("_")[0] for path in seen}) == (1 if shared else 2)
    for path in seen:
        assert not Path(f"/proc/{path.read_text()}").exists(), "a supervisor outlives the tests"
        path.unlink()
