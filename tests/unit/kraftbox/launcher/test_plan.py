"""Plans of a cluster: its nodes, their locations and properties, and their storage in a file."""

import pytest

from kraftbox.launcher.place import ClusterPlace, plan_cluster
from kraftbox.launcher.plan import (
    ONE_NODE,
    AskedShape,
    PlannedNode,
    PlanRefused,
    Ports,
    Remembered,
    Shape,
    check_change,
    check_settings,
    check_shape,
    client_ports,
    node_plans,
    planned_nodes,
    remembered_from_properties,
    remembered_to_properties,
)
from runtime.config import (
    NodeConfig,
    keys_group_coordinator,
    keys_quorum,
    keys_server,
    keys_transactions,
)
from runtime.errors import StartupRefused


def ids(shape, role):
    return [member.node_id for member in planned_nodes(shape) if getattr(member, role)]


@pytest.mark.parametrize(
    ("shape", "controllers", "brokers"),
    [
        (Shape(3, 3), [101, 102, 103], [1, 2, 3]),
        (Shape(1, 2), [101], [1, 2]),
        (Shape(3, 3, combined=True), [1, 2, 3], [1, 2, 3]),
        (Shape(1, 3, combined=True), [1], [1, 2, 3]),
        (Shape(3, 1, combined=True), [1, 2, 3], [1]),
    ],
)
def test_node_ids(shape, controllers, brokers):
    assert ids(shape, "is_controller") == controllers
    assert ids(shape, "is_broker") == brokers


def test_racks_go_round_among_the_brokers():
    shape = Shape(3, 5, racks=("a", "b"))
    assert [m.rack for m in planned_nodes(shape)] == ["a", "b", "a", "b", "a", None, None, None]


def ports_of(nodes):
    return {
        m.node_id: Ports(20000 + m.node_id, 21000 + m.node_id, 22000 + m.node_id) for m in nodes
    }


def test_properties_are_good_configurations_that_agree_on_the_voters():
    nodes = planned_nodes(Shape(3, 3, racks=("a", "b", "c")))
    plans = node_plans(nodes, "/d", ports_of(nodes), {"num.partitions": "4"})
    configs = [NodeConfig.parse(plan.properties) for plan in plans]
    assert {config.text(keys_quorum.CONTROLLER_QUORUM_VOTERS) for config in configs} == {
        "101@127.0.0.1:21101,102@127.0.0.1:21102,103@127.0.0.1:21103"
    }
    assert [config.text(keys_quorum.PROCESS_ROLES) for config in configs] == ["broker"] * 3 + [
        "controller"
    ] * 3
    assert [config[keys_server.BROKER_RACK] for config in configs[:3]] == ["a", "b", "c"]
    assert configs[0].listeners[0].port == 20001
    assert configs[3].listeners[0].port == 21101
    assert {config.log_dir for config in configs} == {f"/d/node-{m.node_id}/data" for m in nodes}
    assert all(config[keys_server.NUM_PARTITIONS] == 4 for config in configs)
    assert all(
        config[keys_group_coordinator.OFFSETS_TOPIC_REPLICATION_FACTOR] == 3 for config in configs
    )
    assert all(config[keys_transactions.TRANSACTION_STATE_LOG_MIN_ISR] == 2 for config in configs)


def test_a_combined_node_has_both_listeners():
    nodes = planned_nodes(Shape(1, 1, combined=True))
    (plan,) = node_plans(nodes, "/d", ports_of(nodes), {})
    assert (
        plan.properties["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:21001"
    )
    assert "controller.quorum.election.timeout.ms" not in plan.properties


def test_client_ports():
    nodes = planned_nodes(Shape(1, 3))
    kept = {1: Ports(5001, 0, 0), 2: Ports(5002, 0, 0)}
    assert client_ports(nodes, None, {}) == {1: 9092, 2: 9093, 3: 9094}
    assert client_ports(nodes, 7000, {}) == {1: 7000, 2: 7001, 3: 7002}
    assert client_ports(nodes, 0, {}) == {1: 0, 2: 0, 3: 0}
    # An added broker gets a free port; the others keep theirs unless a port is given.
    assert client_ports(nodes, None, kept) == {1: 5001, 2: 5002, 3: 0}
    assert client_ports(nodes, 0, kept) == {1: 5001, 2: 5002, 3: 0}
    assert client_ports(nodes, 7000, kept) == {1: 7000, 2: 7001, 3: 7002}
    with pytest.raises(PlanRefused, match="fewer than 3 ports"):
        client_ports(nodes, 65534, {})


@pytest.mark.parametrize("shape", [Shape(0, 1), Shape(1, 0), Shape(100, 1), Shape(1, 101)])
def test_impossible_shapes(shape):
    with pytest.raises(PlanRefused, match="must be from 1"):
        check_shape(shape)


def test_shape_keeps_values_that_are_not_requested():
    before = Shape(3, 2, combined=True, racks=("a", "b"))
    assert AskedShape(brokers=4).over(before) == before._replace(brokers=4)
    assert AskedShape().over(before) == before
    assert AskedShape(controllers=3).over(None) == Shape(3, 1)
    assert AskedShape(1, 1, False, ("c",)).over(before) == Shape(1, 1, True, ("c",))


def test_only_brokers_can_be_added():
    before = Shape(3, 3, racks=("a",))
    check_change(before, before)
    check_change(before, before._replace(brokers=4))
    for after in (
        before._replace(brokers=2),
        before._replace(controllers=1),
        before._replace(combined=True),
        before._replace(racks=()),
    ):
        with pytest.raises(PlanRefused, match="3 controllers and 3 brokers, racks a: only brokers"):
            check_change(before, after)


def test_settings_with_keys_of_a_single_node_are_refused():
    check_settings({"num.partitions": "3"}, Shape(1, 2))
    for key in ("node.id", "listeners"):
        with pytest.raises(PlanRefused, match=f"--set {key}"):
            check_settings({key: "3"}, Shape(1, 2))
    check_settings({"listeners": "PLAINTEXT://:9092"}, ONE_NODE)
    with pytest.raises(PlanRefused, match="--set node.id"):
        check_settings({"node.id": "3"}, ONE_NODE)


def test_remembered_plan_survives_round_trip():
    shape = Shape(3, 2, racks=("a", "b c"))
    known = Remembered(
        "id", shape, ports_of(planned_nodes(shape)), {"num.partitions": "3", "a": ""}
    )
    assert remembered_from_properties(remembered_to_properties(known)) == known
    one = Remembered("id", ONE_NODE, {1: Ports(1, 2, 3)}, {}, first_in_root=True)
    assert remembered_from_properties(remembered_to_properties(one)) == one
    lines = remembered_to_properties(known)
    assert remembered_from_properties({**lines, "layout.version": "1"}) == known
    old = {key: value for key, value in lines.items() if key != "layout.version"}
    assert remembered_from_properties(old) == known
    for later in ("3", "0", "x"):
        with pytest.raises(
            PlanRefused, match=f"layout.version={later} is not supported; this release reads 1"
        ):
            remembered_from_properties({**lines, "layout.version": later})
    for wrong in ({"brokers": "x"}, {"node.1.ports": "1,2"}, {"brokers": "3"}):
        with pytest.raises(PlanRefused, match="damaged"):
            remembered_from_properties({**lines, **wrong})


# --- with a directory -------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path):
    return ClusterPlace(tmp_path)


def test_addresses_and_settings_are_kept(place):
    first, _ = plan_cluster(place, AskedShape(3, 2), 0, {"num.partitions": "3"}, "cluster-1")
    place.keep(first)
    again, plans = plan_cluster(place, AskedShape(), None, {}, "cluster-2")
    assert again == first
    assert plans[0].properties["num.partitions"] == "3"
    numbers = [port for ports in first.ports.values() for port in ports if port]
    assert len(set(numbers)) == len(numbers) == 2 + 3 + 5
    assert place.node_logs() == {
        number: place.root / f"node-{number}" / "node.log" for number in (1, 2, 101, 102, 103)
    }


def test_an_added_broker_leaves_the_others_where_they_are(place):
    first, _ = plan_cluster(place, AskedShape(1, 2), 0, {}, "c")
    place.keep(first)
    more, _ = plan_cluster(place, AskedShape(1, 3), None, {}, "c")
    assert {n: more.ports[n].client for n in (1, 2)} == {n: first.ports[n].client for n in (1, 2)}
    assert more.ports[3].client not in (0, *(p.client for p in first.ports.values()))


def test_a_refused_plan_is_a_refused_start(place):
    with pytest.raises(StartupRefused, match="--controllers"):
        plan_cluster(place, AskedShape(0, 1), 0, {}, "c")
    place.properties.write_text("brokers=1\n")
    with pytest.raises(StartupRefused, match="damaged"):
        plan_cluster(place, AskedShape(), 0, {}, "c")


def test_a_node_without_a_role_has_none():
    assert PlannedNode(1, True, True).roles == "broker,controller"
    assert PlannedNode(1, False, True).roles == "broker"
