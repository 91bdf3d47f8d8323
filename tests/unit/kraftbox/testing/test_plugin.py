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


def test_a_mark_that_is_wrong_names_its_argument(pytester):
    pytester.makepyfile(f"import pytest\n@pytest.mark.kafka(broker=1)\n{A_TEST.strip()}")
    done = pytester.runpytest_inprocess(*QUIET)
    assert done.ret != 0
    assert "kafka(broker=...): unknown argument; allowed: brokers, controllers" in done.stdout.str()
    assert "a test ran" not in done.stdout.str()
