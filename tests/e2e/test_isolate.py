"""A cluster with a network of its own: reachable, with links that are cut and healed.

It leaves nothing behind.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftbox.chaos import local
from kraftbox.chaos.target import CUT, HOST, Ability, LocalTarget
from kraftbox.launcher import control, router
from kraftbox.launcher.addresses import NAMESPACES, Network
from kraftbox.launcher.links import Link, LinkRule
from kraftbox.launcher.place import ClusterPlace
from kraftbox.launcher.router import NetworkControl
from kraftbox.testing import ClusterError, KafkaCluster
from testkit.processes.local_cluster import COMMAND

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not router.is_possible(), reason="links between nodes need Linux, root and iproute2"
    ),
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClusterPlace]:
    made = ClusterPlace(tmp_path / "cluster")
    made.root.mkdir()
    yield made
    control.down(made)


def answers(target: LocalTarget, wait_s: float) -> bool:
    """Return whether the first broker accepts a connection."""
    try:
        socket.create_connection(target.bootstrap[0], wait_s).close()
    except OSError:
        return False
    return True


def test_links_are_cut_and_healed_and_nothing_is_left(place: ClusterPlace) -> None:
    target = local.start(place, controllers=1, brokers=2, isolate=True)
    known = place.remembered()
    assert known is not None and known.network
    network = Network(known.network)
    assert {host for host, _ in target.bootstrap} == {network.address(1), network.address(2)}
    assert Ability.LINKS in target.abilities
    assert {one.name for one in NAMESPACES.glob(f"kbx{network.number}-*")} == {
        network.namespace(node_id) for node_id in (1, 2, 101)
    }

    links = NetworkControl(place)
    assert answers(target, 5)
    # One direction is enough: the answer to a connection does not come back.
    links.set_links([LinkRule(1, HOST, CUT)])
    assert not answers(target, 1)
    links.set_links([LinkRule(1, HOST, Link(delay_ms=20.0))])
    assert answers(target, 5)
    links.set_links([])
    assert answers(target, 5)

    control.down(place)
    assert not list(NAMESPACES.glob(f"kbx{network.number}-*"))
    assert not Path("/sys/class/net", network.device).exists()
    assert not place.root.joinpath("network").exists()


def test_link_of_the_test_api_is_cut_and_healed() -> None:
    """A cut is healed by the link itself, or with everything else by `heal`."""
    with KafkaCluster.start(isolate=True) as cluster:
        topic = cluster.create_topic()
        link = cluster.link(1, "clients")
        link.slow(5.0, jitter_ms=1.0)
        cluster.produce(topic, "slowly")
        for heal in (link.heal, cluster.heal):
            link.cut()
            with pytest.raises(ClusterError):
                cluster.produce(topic, "lost", timeout_s=0.3)
            heal()
            cluster.produce(topic, "whole")
        assert not cluster.is_linked
        values = [record.value for record in cluster.consume(topic)]
        assert values[0] == b"slowly" and values.count(b"whole") == 2
        with pytest.raises(ClusterError, match="unknown node 7; known: 1 and clients"):
            cluster.link(1, 7).cut()
        with pytest.raises(ClusterError, match="both ends are 1"):
            cluster.link(1, 1).cut()


def test_a_cluster_keeps_its_network_and_one_without_gets_none(place: ClusterPlace) -> None:
    first = local.start(place, controllers=1, brokers=1, isolate=True).bootstrap
    control.down(place)
    assert local.start(place).bootstrap == first
    control.down(place)
    other = ClusterPlace(place.root.parent / "other")
    other.root.mkdir()
    local.start(other, controllers=1, brokers=2, isolate=False)
    control.down(other)
    done = subprocess.run(
        [*COMMAND, "up", "--dir", str(other.root), "--controllers", "1", "--brokers", "2"]
        + ["--isolate"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "--isolate needs a new cluster" in done.stderr
