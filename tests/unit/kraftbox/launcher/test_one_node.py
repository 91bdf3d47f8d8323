"""A plain `kraftbox up`: a cluster of one in the directory itself, and directories of older
versions."""

import os
import stat

import pytest

from kraftbox.launcher import announcement
from kraftbox.launcher.early import LOCK, Early
from kraftbox.launcher.place import ClusterPlace, plan_cluster
from kraftbox.launcher.plan import (
    HOST,
    NODE_LOG,
    ONE_NODE,
    AskedShape,
    PlanRefused,
    Ports,
    remembered_from_node,
)
from kraftbox.launcher.start import Options, run
from runtime.config import ConfigError, NodeConfig, keys_group_coordinator, keys_kraftbox
from runtime.config.properties import parse_properties
from runtime.errors import StartupRefused

OLD = f"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{HOST}:12345,CONTROLLER://{HOST}:0
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{HOST}:0
log.dirs=/where/it/was/data
kraftbox.http.listener={HOST}:0
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions=2
"""
"""The server.properties of a plain `up` of a version without a cluster.properties."""


@pytest.fixture
def place(tmp_path):
    return ClusterPlace(tmp_path / "d")


def planned(place, port=None, settings=None, asked=None):
    """Plan a start and store the result, as the start does. Returns: the cluster, and its node's
    plan."""
    place.root.mkdir(exist_ok=True)
    known, plans = plan_cluster(place, asked, port, settings or {}, "new-id")
    place.keep(known)
    place.prepare_nodes(plans)
    return known, plans[0]


def test_plan_has_no_setting_that_a_node_reports_as_without_effect(place):
    """A start without options gives its user nothing to correct."""
    assert NodeConfig.parse(planned(place)[1].properties).warnings == []


def client_port(plan):
    return NodeConfig.parse(plan.properties).broker_listeners[0].port


def test_a_new_directory_gets_the_default_port_and_one_replica(place):
    known, plan = planned(place)
    config = NodeConfig.parse(plan.properties)
    assert known.shape == ONE_NODE and known.first_in_root
    assert client_port(plan) == 9092
    assert config[keys_group_coordinator.OFFSETS_TOPIC_REPLICATION_FACTOR] == 1
    assert config[keys_group_coordinator.GROUP_INITIAL_REBALANCE_DELAY_MS] == 0
    assert config[keys_kraftbox.KRAFTBOX_BROKER_CONNECTION_LOSS_FENCE_MS] == 0, (
        "nobody is left to fence it"
    )
    assert config.log_dir == str(place.root / "data")
    assert place.node_logs() == {1: place.root / NODE_LOG}


def test_settings_win_and_are_kept(place):
    assert planned(place, 0, {"num.partitions": "3"})[1].properties["num.partitions"] == "3"
    assert planned(place)[1].properties["num.partitions"] == "3"
    assert planned(place, None, {"num.partitions": "4"})[1].properties["num.partitions"] == "4"


def test_client_port_is_kept_until_another_is_requested(place):
    first = client_port(planned(place, 0)[1])
    for port, expected in ((None, first), (0, first), (12346, 12346), (None, 12346)):
        assert client_port(planned(place, port)[1]) == expected


def test_own_listeners_are_kept_until_a_port_is_requested(place):
    own = f"PLAINTEXT://0.0.0.0:9292,CONTROLLER://{HOST}:0"
    for settings in ({"listeners": own}, {}):
        plan = planned(place, None, settings)[1]
        assert plan.properties["listeners"] == own
        # The node itself chooses it: the directory does not store it.
        assert plan.properties["controller.quorum.voters"] == f"1@{HOST}:0"
    assert client_port(planned(place, 12346)[1]) == 12346


@pytest.mark.parametrize("key", ["node.id", "broker.id", "process.roles"])
def test_the_node_is_who_it_is(place, key):
    with pytest.raises(StartupRefused, match=f"--set {key}"):
        planned(place, None, {key: "2"})


def test_a_moved_directory_keeps_its_data(place, tmp_path):
    planned(place)
    place.root.rename(tmp_path / "moved")
    moved = ClusterPlace(tmp_path / "moved")
    assert planned(moved)[1].properties["log.dirs"] == str(moved.root / "data")


def test_single_node_grows_to_cluster_in_its_directory(place):
    before, plan = planned(place, 0)
    known, plans = plan_cluster(place, AskedShape(brokers=3), None, {}, "other")
    assert known.cluster_id == before.cluster_id
    assert plans[0].directory == plan.directory
    assert [one.node.roles for one in plans] == ["broker,controller", "broker", "broker"]
    assert plans[2].directory == f"{place.root}/node-3"
    assert known.ports[1] == before.ports[1]
    assert plans[0].properties["offsets.topic.replication.factor"] == "3"
    with pytest.raises(StartupRefused, match="contains a single node: only brokers can be added"):
        plan_cluster(place, AskedShape(controllers=3), None, {}, "other")


def test_single_node_with_own_advertised_listeners_cannot_grow(place):
    planned(place, None, {"advertised.listeners": "PLAINTEXT://here:9092"})
    with pytest.raises(StartupRefused, match="advertised.listeners: `up` sets it for each node"):
        plan_cluster(place, AskedShape(brokers=2), None, {}, "other")


# --- directories of before ------------------------------------------------------------------------


def old(place, text=OLD, cluster_id="old-id"):
    data = place.root / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\nnode.id=1\n")
    (place.root / "server.properties").write_text(text)


def test_an_older_directory_goes_on_as_it_was(place):
    old(place)
    assert not place.is_new
    assert place.node_logs() == {1: place.root / NODE_LOG}
    known, plan = planned(place)
    assert (known.cluster_id, known.shape, known.first_in_root) == ("old-id", ONE_NODE, True)
    assert known.settings == {"num.partitions": "2"}
    assert client_port(plan) == 12345
    assert plan.directory == str(place.root)
    assert plan.properties["log.dirs"] == str(place.root / "data")
    again, _ = planned(place)
    assert again.cluster_id == "old-id" and again.settings == known.settings


def test_an_older_directory_grows(place):
    old(place)
    known, plans = plan_cluster(place, AskedShape(brokers=2), None, {}, "other")
    assert known.cluster_id == "old-id"
    assert [plan.directory for plan in plans] == [str(place.root), f"{place.root}/node-2"]


def test_older_settings_of_ones_own_are_kept(place):
    own = f"PLAINTEXT://0.0.0.0:9292,CONTROLLER://{HOST}:0"
    lines = {**parse_properties(OLD), "listeners": own, "kraftbox.http.listener": "0.0.0.0:9404"}
    known = remembered_from_node(lines)
    assert known.settings == {
        "listeners": own,
        "kraftbox.http.listener": "0.0.0.0:9404",
        "num.partitions": "2",
    }
    assert known.ports == {1: Ports(0, 0, 0)}


@pytest.mark.parametrize(
    "line", ["node.id=7", "process.roles=broker", "process.roles=controller", "broker.id=1"]
)
def test_the_server_properties_of_another_node_is_no_older_directory(place, line):
    with pytest.raises(PlanRefused, match="kraftbox server FILE"):
        remembered_from_node(parse_properties(f"{line}\n"))
    old(place, f"{line}\n")
    with pytest.raises(StartupRefused, match="kraftbox server FILE"):
        planned(place)


def test_another_nodes_log_directory_is_left_alone(place):
    place.root.mkdir()
    (place.root / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(StartupRefused, match="kraftbox server"):
        Early(str(place.root))
    assert [child.name for child in place.root.iterdir()] == ["meta.properties"]


def test_a_refused_start_leaves_no_directory(place):
    early = Early(str(place.root))
    with pytest.raises(ConfigError, match="num.partitions=0"):
        run(early, Options(0, {"num.partitions": "0"}), begun=0.0)
    assert not place.root.exists()
    place.root.mkdir()
    (place.root / LOCK).touch()
    with pytest.raises(ConfigError):
        run(Early(str(place.root)), Options(0, {"num.partitions": "0"}), begun=0.0)
    assert (place.root / LOCK).exists(), "it was there before"


# --- the announcement -----------------------------------------------------------------------------


def test_only_real_differences_are_shown(place):
    _, plan = planned(place, 0, {"num.partitions": "1", "ssl.key.password": "x"})
    shown = announcement.differences(NodeConfig.parse(plan.properties))
    assert "group.initial.rebalance.delay.ms=0 (default 3000)" in shown
    assert "ssl.key.password=(hidden) (default none)" in shown
    assert not any(line.startswith(("num.partitions", "node.id", "listeners")) for line in shown)


def test_one_node_is_announced_with_its_data_log_and_health(place):
    _, plan = planned(place, 0, {"no.such.key": "1"})
    config = NodeConfig.parse(plan.properties)
    lines = announcement.of_one_node(plan, config, connect_to="h:1", http="h:2", seconds=0.5)
    assert lines[:5] == [
        "Node 1 is ready after 0.50 s.",
        "  connect to   h:1",
        f"  data         {place.root}/data",
        f"  log          {place.root}/node.log",
        "  health       http://h:2/readyz, /healthz, /metrics",
    ]
    assert "no.such.key" in lines[-1] and lines[-1].startswith("  warning: ")


def test_a_cluster_is_announced_node_by_node(place):
    place.root.mkdir()
    known, plans = plan_cluster(place, AskedShape(1, 2, racks=("a", "b")), 7000, {}, "c")
    configs = [NodeConfig.parse(plan.properties) for plan in plans]
    lines = announcement.of_cluster(
        known.shape, plans, configs, connect_to="h:1,h:2", root="/d", seconds=1
    )
    assert lines[0] == "Cluster of 1 controller and 2 brokers is ready after 1.00 s."
    assert lines[2] == f"  node 1       broker, rack a: PLAINTEXT://{HOST}:7000"
    assert lines.count("  directory    /d") == 1
    assert sum("kraftbox.broker.connection.loss.fence.ms=500" in line for line in lines) == 1


def test_directories_and_files_of_a_cluster_are_for_their_owner_only(tmp_path):
    """Settings may be passwords, and cluster.properties and server.properties contain all of
    them."""
    root = tmp_path / "c"
    before = os.umask(0)
    try:
        early = Early(str(root))
        assert early.fork_server is not None
        early.fork_server.stdin.close()
        early.fork_server.wait()
        early.fork_server.stdout.close()
        os.close(early.log_fd)
        os.close(early.lock_fd)
        place = ClusterPlace(root)
        known, plans = plan_cluster(
            place, AskedShape(1, 2), None, {"ssl.key.password": "secret"}, "id"
        )
        place.keep(known)
        place.prepare_nodes(plans)
    finally:
        os.umask(before)
    for path in [root, *root.rglob("*")]:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
