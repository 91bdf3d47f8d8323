"""Changes of single links, and the scrape configuration for Prometheus."""

import json
import random
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from kraftbox import __main__ as program
from kraftbox.chaos.target import CUT
from kraftbox.cli import link, prometheus
from kraftbox.cli.output import CommandFailed
from kraftbox.launcher import control
from kraftbox.launcher.links import WHOLE, Link, LinkRule, Links
from kraftbox.launcher.place import ClusterPlace, plan_cluster
from kraftbox.launcher.plan import AskedShape

NODES = [1, 2, 101]


class Network:
    """The links of a cluster, without packets."""

    def __init__(self):
        self.made = Links(random.Random(1))

    def set_links(self, rules):
        self.made.set(rules)

    def change_links(self, rules):
        self.made.change(rules)

    def links(self):
        return self.made.rules


@pytest.fixture
def run(capsys, monkeypatch):
    network = Network()
    monkeypatch.setattr(link, "_network", lambda _: (network, NODES))

    def run_here(*arguments):
        code = program.run(["link", *arguments])
        return SimpleNamespace(code=code, links=network.made, **capsys.readouterr()._asdict())

    return run_here


def test_links_are_changed_and_healed_one_by_one(run):
    assert run("cut", "1", "2").out == "the link between 1 and 2 is cut\n"
    run("slow", "1", "clients", "--delay", "200", "--rate", "0")
    done = run("lossy", "1", "101", "--loss", "30", "--one-way")
    assert done.out == "the link from 1 to 101 is lossy\n"
    slow = Link(delay_ms=200.0, jitter_ms=20.0)
    lossy = Link(loss=0.3, delay_ms=1.0, duplicate=0.02, reorder=0.1)
    assert done.links.rules == [
        LinkRule(0, 1, slow),
        LinkRule(1, 0, slow),
        LinkRule(1, 2, CUT),
        LinkRule(1, 101, lossy),
        LinkRule(2, 1, CUT),
    ]
    run("heal", "2", "1")
    assert [rule[:2] for rule in json.loads(json.dumps(run("heal", "2", "1").links.rules))] == [
        [0, 1],
        [1, 0],
        [1, 101],
    ]
    told = json.loads(run("list", "--json").out)
    assert told[0] == {"from": 0, "to": 1, **slow._asdict()}
    shown = run("list").out
    assert "clients" in shown and "30%" in shown
    assert run("heal").out == "healed every link\n"
    assert run("list", "--json").out == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["cut", "1", "7"], 1, "unknown node 7; known: 1, 2, 101 and clients"),
        (["cut", "1", "1"], 1, "invalid link: both ends are 1"),
        (["cut", "1", "x"], 2, "'x': expected a node's id or 'clients'"),
        (["cut", "1", "0"], 2, "'0': expected a node's id or 'clients'"),
        (["heal", "1"], 2, "both ends of a link"),
        (["lossy", "1", "2", "--loss", "101"], 2, "'--loss'"),
        (["slow", "1", "2", "--delay", "-1"], 2, "'--delay'"),
    ],
)
def test_invalid_link_is_refused_by_name(run, arguments, code, said):
    done = run(*arguments)
    assert done.code == code and done.out == ""
    assert said in " ".join(done.err.replace("│", " ").split())
    assert done.links.rules == []


def test_a_link_that_is_made_whole_leaves_nothing_behind():
    links = Links(random.Random(1))
    links.change([LinkRule(1, 2, Link(rate_bytes_per_s=1))])
    assert links.arrivals(1, 2, 10, 0.0) == [10_000.0]
    links.change([LinkRule(1, 2, WHOLE), LinkRule(5, 6, WHOLE)])
    assert links.is_whole(1, 2) and links.rules == []
    links.change([LinkRule(1, 2, Link(rate_bytes_per_s=10))])
    assert links.arrivals(1, 2, 10, 0.0) == [1000.0], "nothing waits from before"


def test_link_without_running_cluster_is_refused(capsys, tmp_path):
    assert program.run(["link", "cut", "1", "2", "--dir", str(tmp_path)]) == 1
    assert "no cluster is running in" in capsys.readouterr().err


def test_a_running_cluster_without_a_network_of_its_own(monkeypatch, kept):
    monkeypatch.setattr(control, "status", lambda *_: {"nodes": [{"id": 1}]})
    with pytest.raises(CommandFailed, match="kraftbox up --isolate"):
        link._network(kept.root)


# --- prometheus ---------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path):
    """Return the directory of a stopped cluster."""
    place = ClusterPlace(tmp_path / "orders")
    place.root.mkdir()
    known, _ = plan_cluster(place, AskedShape(1, 2), 0, {}, "c")
    place.keep(known)
    return place


def test_the_configuration_has_both_jobs_and_the_labels_of_the_dashboards(kept, capsys):
    assert program.run(["prometheus", "--dir", str(kept.root)]) == 0
    told = capsys.readouterr().out
    http = {number: ports.http for number, ports in kept.remembered().ports.items()}
    assert told.count("job_name") == 2
    for number, port in http.items():
        assert f'targets: ["127.0.0.1:{port}"]' in told
        assert f'kubernetes_pod_name: "orders-{number}"' in told
    broker, controller = told.split("job_name: kafka-controller")
    assert f":{http[101]}" in controller and f":{http[101]}" not in broker
    for label in ("env", "kafka_cluster", "namespace", "strimzi_io_cluster", "strimzi_io_kind"):
        assert told.count(f"          {label}: ") == 3


def test_json_is_what_http_sd_reads_and_nothing_else(kept, capsys):
    assert program.run(["prometheus", "--dir", str(kept.root), "--json", "--name", "n"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["labels"]["job"] for one in found] == [*["kafka-broker"] * 2, "kafka-controller"]
    assert all(one["labels"]["kafka_cluster"] == "n" for one in found)
    assert all(set(one) == {"targets", "labels"} for one in found)


def test_prometheus_targets_use_current_ports(kept, monkeypatch):
    nodes = [{"id": 1, "http": "127.0.0.1:7"}, {"id": 2, "http": None}]
    monkeypatch.setattr(control, "status", lambda *_: {"nodes": nodes})
    first, second, _ = prometheus._targets(kept, "n")
    assert first["targets"] == ["127.0.0.1:7"]
    assert second["targets"] == [f"127.0.0.1:{kept.remembered().ports[2].http}"]


def test_nodes_of_a_network_of_its_own_have_their_own_addresses(kept):
    kept.keep(kept.remembered()._replace(network=7))
    ports = kept.remembered().ports
    found = [one["targets"] for one in prometheus._targets(kept, "n")]
    assert found == [[f"10.213.7.{number}:{ports[number].http}"] for number in (1, 2, 101)]


def test_a_node_without_a_port_is_no_target():
    assert prometheus.targets({1: "h:0", 2: "", 3: "h:1"}, {3: "broker"}, "n")[0]["targets"] == [
        "h:1"
    ]


def test_http_sd_reads_the_cluster_at_each_request(kept, monkeypatch):
    server = prometheus._server(kept, "n", 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        with urllib.request.urlopen(url, timeout=30) as reply:
            assert reply.headers["Content-Type"] == "application/json"
            assert len(json.load(reply)) == 3
        known, _ = plan_cluster(kept, AskedShape(brokers=3), None, {}, "c")
        kept.keep(known)
        with urllib.request.urlopen(url, timeout=30) as reply:
            assert len(json.load(reply)) == 4
        kept.properties.unlink()
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, timeout=30)
        assert caught.value.code == 503
        caught.value.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert url in prometheus.discovering(url)


def test_there_is_no_cluster(tmp_path, capsys):
    assert program.run(["prometheus", "--dir", str(tmp_path)]) == 1
    assert "no cluster in" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(kept):
    server = prometheus._server(kept, "n", 0)
    try:
        with pytest.raises(CommandFailed, match="--serve [0-9]+: cannot listen"):
            prometheus._server(kept, "n", server.server_address[1])
    finally:
        server.server_close()
