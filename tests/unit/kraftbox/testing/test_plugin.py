"""Refusals of the pytest plugin before a test runs; no cluster is started."""

import pytest

pytest_plugins = ["pytester"]

A_TEST = """
def test_it(kafka_cluster):
    raise AssertionError("a test ran")
"""
QUIET = ("-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:randomly")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("kafka_brokers = 0", "kafka_brokers = 0: expected a number from 1 to 99"),
        ("kafka_controllers = many", "kafka_controllers = many: expected a number from 1 to 99"),
        ("kafka_configs = x", "kafka_configs: expected KEY=VALUE, got 'x'"),
        ("kafka_configs = num.partitions=-1", "num.partitions=-1: must be an integer of at least"),
        ("kafka_configs = num.partition=1", "did you mean num.partitions?"),
        ("kafka_configs = node.id=7", "node.id: `up` sets it for each node"),
    ],
)
def test_settings_that_are_wrong_end_the_run_before_it_begins(pytester, line, said):
    pytester.makeini(f"[pytest]\n{line}\n")
    pytester.makepyfile("def test_it(): raise AssertionError('a test ran')")
    done = pytester.runpytest_inprocess(*QUIET)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    told = done.stderr.str()
    assert told.startswith("ERROR: kafka_") and said in told


def test_good_settings_and_marks_are_known(pytester):
    pytester.makeini("[pytest]\nkafka_brokers = 2\nkafka_configs = num.partitions=2\n")
    pytester.makepyfile(
        """
        import pytest
        pytestmark = pytest.mark.kafka(controllers=1)

        @pytest.mark.kafka(brokers=1)
        @pytest.mark.kafka_topic(partitions=3)
        def test_it(kafka_cluster, kafka_topic): ...

        @pytest.mark.parametrize("number", [1, 2])
        def test_more(kafka_cluster, number): ...
        """
    )
    done = pytester.runpytest_inprocess(*QUIET, "--strict-markers", "--collect-only")
    assert done.ret == 0, done.stdout.str()
    found = [line.partition("::")[2] for line in done.stdout.lines if "::" in line]
    assert found == ["test_it", "test_more[1]", "test_more[2]"]


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("kafka(broker=1)", "@pytest.mark.kafka has no 'broker'; did you mean 'brokers'?"),
        ("kafka(brokers='3')", "kafka(brokers='3'): expected a number from 1 to 99"),
        (
            "kafka_topic(partition=3)",
            "@pytest.mark.kafka_topic has no 'partition'; did you mean 'partitions'?",
        ),
        (
            "kafka(configs={'log.retention.hour': 1})",
            "kafka(configs=...): log.retention.hour is not a known configuration key and has no "
            "effect; did you mean log.retention.hours?",
        ),
    ],
)
def test_wrong_mark_fails_its_own_test_with_file_and_line(pytester, mark, said):
    """A mark is checked as pytest.ini is, and the other tests of the module run."""
    pytester.makepyfile(
        test_marks=f"""
        import pytest

        def test_before(): ...

        @pytest.mark.{mark}
        def test_wrong(kafka_cluster):
            raise AssertionError("a test ran")

        @pytest.mark.{mark}
        def test_without_cluster():
            raise AssertionError("a test ran")
        """
    )
    done = pytester.runpytest_inprocess(*QUIET)
    done.assert_outcomes(passed=1, errors=2)
    told = done.stdout.str()
    assert f"test_marks.py:5 test_wrong: {said}" in told.replace("\n", "")
    assert "Traceback" not in told and "During handling" not in told
    assert "a test ran" not in told


def test_setting_without_effect_is_reported_with_its_reason(pytester):
    pytester.makeini("[pytest]\nkafka_configs = num.network.threads=9\n")
    pytester.makepyfile("def test_it(): ...")
    done = pytester.runpytest_inprocess(*QUIET[1:])
    done.stdout.fnmatch_lines(
        "kafka_configs: num.network.threads has no effect: one event loop does the work of *"
    )


WITH_A_CLUSTER = """
import pytest
from kraftbox.testing import plugin
from kraftbox.testing.healing import Node, repairs


class Fake:
    is_open, is_linked = True, False

    def __init__(self):
        self.touched = set()
        self.nodes = {1: "running", 2: "running"}
        self.running = self

    def logs(self):
        return []

    def states(self):
        return [Node(node, state) for node, state in self.nodes.items()]

    def heal(self, but):
        found = repairs(self.states(), self.nodes.keys() - set(but))
        self.nodes.update({repair.node_id: "running" for repair in found})
        return found


FAKE = Fake()


@pytest.fixture
def nodes():
    return FAKE.nodes


def pytest_collection_modifyitems(config):
    config.stash[plugin._CLUSTERS].append(FAKE)
"""


def test_plugin_heals_cluster_after_each_test_unless_mark_forbids_it(pytester):
    """The damage of one test is not seen by another; `heal=False` keeps it for its like."""
    pytester.makeconftest(WITH_A_CLUSTER)
    pytester.makepyfile(
        test_heal="""
        import pytest

        WHOLE = {1: "running", 2: "running"}
        unhealed = pytest.mark.kafka(heal=False)

        def test_kills(nodes):
            nodes[1] = "killed"
            assert False, "on purpose"

        def test_next(nodes):
            assert nodes == WHOLE

        @pytest.fixture
        def repaired(nodes):
            yield
            nodes[2] = "running"

        def test_own_repair(nodes, repaired):
            nodes[2] = "paused"

        @unhealed
        def test_leaves_it(nodes):
            assert nodes == WHOLE
            nodes[2] = "killed"

        @unhealed
        def test_finds_it(nodes):
            assert nodes == {1: "running", 2: "killed"}
            nodes[1] = "paused"

        def test_last(nodes):
            assert nodes == WHOLE
        """
    )
    done = pytester.runpytest_inprocess(*QUIET)
    done.assert_outcomes(passed=5, failed=1)
    lines = [line for line in done.stdout.lines if line.startswith("healed: ")]
    killed = "healed: node 1, killed by test_heal.py::test_kills"
    assert lines == [
        killed,
        "healed: node 1, paused by test_heal.py::test_finds_it (heal=False)",
        "healed: node 2, killed by test_heal.py::test_leaves_it (heal=False)",
    ]


def test_error_of_the_cluster_has_its_public_name_and_no_frame_of_ours(pytester):
    pytester.makepyfile(
        """
        from kraftbox.testing import KafkaCluster

        def test_it():
            KafkaCluster.attach("nowhere")
        """
    )
    told = pytester.runpytest_inprocess(*QUIET).stdout.str()
    assert "kraftbox.testing.ClusterError: no answer from the cluster in" in told
    assert "kraftbox/testing/" not in told and "test_it" in told
