import pytest

from kraftbox.launcher import single
from kraftbox.launcher.differences import differences
from kraftbox.process import up
from runtime.config import NodeConfig
from runtime.config.properties import parse_properties
from runtime.errors import StartupRefused


@pytest.fixture
def place(tmp_path):
    made = single.Place(str(tmp_path / "d"))
    made.root.mkdir()
    return made


def test_a_new_directory_gets_the_default_port_and_one_replica(place):
    props = single.properties(place, None, {})
    config = NodeConfig.parse(props)
    assert [e.port for e in config.broker_listeners] == [9092]
    assert config["offsets.topic.replication.factor"] == 1
    assert config["group.initial.rebalance.delay.ms"] == 0
    assert config.log_dir == str(place.data)


def test_settings_win_and_are_kept(place):
    props = single.properties(place, 0, {"num.partitions": "3"})
    assert props["num.partitions"] == "3"
    place.remember(props)
    assert single.properties(place, None, {})["num.partitions"] == "3"
    assert single.properties(place, None, {"num.partitions": "4"})["num.partitions"] == "4"


def test_the_address_is_remembered_until_another_is_asked_for(place):
    place.remember({**single.properties(place, 0, {}), "listeners": single.listeners(12345)})
    for port, expected in ((None, 12345), (0, 12345), (12346, 12346)):
        config = NodeConfig.parse(single.properties(place, port, {}))
        assert config.broker_listeners[0].port == expected


def test_a_moved_directory_keeps_its_data(place, tmp_path):
    place.remember(single.properties(place, 0, {}))
    place.root.rename(tmp_path / "moved")
    moved = single.Place(str(tmp_path / "moved"))
    assert single.properties(moved, None, {})["log.dirs"] == str(moved.data)


def test_what_is_written_is_readable_properties(place):
    place.remember({"a": "b c", "listeners": "X://h:1"})
    assert parse_properties(place.properties.read_text()) == {"a": "b c", "listeners": "X://h:1"}


def test_only_real_differences_are_shown(place):
    props = single.properties(place, 0, {"num.partitions": "1", "ssl.key.password": "x"})
    shown = differences(NodeConfig.parse(props))
    assert "group.initial.rebalance.delay.ms=0 (default 3000)" in shown
    assert "ssl.key.password=(hidden) (default none)" in shown
    assert not any(line.startswith(("num.partitions", "node.id", "listeners")) for line in shown)


def test_another_nodes_log_directory_is_left_alone(place):
    (place.root / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(StartupRefused, match="kraftbox server"):
        up.run(str(place.root), 0, {})
    assert sorted(child.name for child in place.root.iterdir()) == ["meta.properties"]
