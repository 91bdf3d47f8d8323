"""Hand-written documents: parsing, and the errors for invalid ones."""

import json
import re

import pytest

from kraftbox import __main__ as program
from kraftbox.cli import testbed
from kraftbox.cli.election_file import read_election_file
from kraftbox.cli.output import CommandFailed
from kraftbox.cli.schema import NAMES
from kraftbox.cli.testbed import Step, timeline
from kraftbox.documents.base import BadDocument, parse
from kraftbox.documents.others import ElectionFile
from kraftbox.documents.testbed import Testbed
from kraftbox.launcher import control, start
from kraftbox.launcher.links import WHOLE, LinkRule
from kraftbox.launcher.place import ClusterPlace, plan_cluster
from kraftbox.launcher.plan import AskedShape
from runtime.errors import StartupRefused

WHOLE_TESTBED = """
controllers: 3
brokers: 3
racks: [a, b, c]
port: 0
network: isolated
settings: {num.partitions: 2, auto.create.topics.enable: false}
roles:
  broker: {broker.session.timeout.ms: 6000, a: 1}
  controller: {a: 2}
nodes:
  2: {rack: x, settings: {a: own}}
topics:
  orders: {partitions: 6, replicas: 3, settings: {retention.ms: 60000}}
links:
  - {between: [1, clients], delay_ms: 5}
  - {between: [2, 3], loss_percent: 10, one_way: true}
faults:
  - {at_seconds: 3, do: pause, nodes: [1, 101], seconds: 2}
  - {at_seconds: 5, do: cut, link: [3, 2], seconds: 1}
  - {at_seconds: 4, do: kill, nodes: [3]}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "testbed.yaml"
    path.write_text(WHOLE_TESTBED)
    return path


def test_testbed_defines_shape_and_settings_of_cluster(file):
    read = testbed.read(str(file))
    assert read.asked == AskedShape(3, 3, False, ("a", "x", "c"))
    assert (read.port, read.isolate) == (0, True)
    assert read.settings == {"num.partitions": "2", "auto.create.topics.enable": "false"}
    assert read.own[1] == {"broker.session.timeout.ms": "6000", "a": "1"}
    assert read.own[2]["a"] == "own" and read.own[103] == {"a": "2"}
    assert json.loads(json.dumps(read.after))["topics"]["orders"] == {
        "partitions": 6,
        "replicas": 3,
        "settings": {"retention.ms": "60000"},
    }


def test_an_empty_testbed_is_a_controller_and_a_broker(tmp_path):
    (tmp_path / "t").write_text("{}")
    read = testbed.read(str(tmp_path / "t"))
    assert read == (AskedShape(1, 1, False, ()), None, {}, {}, False, None)


def test_json_is_yaml_too():
    assert parse(Testbed, '{"brokers": 2}').brokers == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a map with the keys controllers, brokers, "),
        ("brokrs: 3", "invalid key 'brokrs'; allowed: controllers, brokers, "),
        ("brokers: 0", "brokers: 0: input should be greater than or equal to 1"),
        ("brokers: 101", "brokers: 101: input should be less than or equal to 100"),
        ("brokers: true", "brokers: True: "),
        ("brokers: '3'", "brokers: '3': "),
        ("combined: 1", "combined: 1: "),
        ("port: 65536", "port: 65536: "),
        ("brokers: 1\nbrokers: 2", "line 2: duplicate key 'brokers'"),
        ("racks: &r [*r]", "an alias"),
        ("a: [1", "line 1: "),
        ("!!python/object/apply:os.system [ls]", "line 1: could not determine a constructor"),
        (
            "topics: {a: {partition: 1}}",
            "invalid key 'partition' of topics.a; allowed: partitions,",
        ),
        (
            "topics: {a: {replicas: 2}}",
            "topics.a.replicas: 2: must be at most 1, the number of brokers",
        ),
        ("nodes: {7: {}}", "nodes: unknown node 7; known: 1, 101"),
        ("nodes: {1: {rak: b}}", "invalid key 'rak' of nodes.1; allowed: rack, settings"),
        ("nodes: {101: {rack: b}}", "nodes.101: only a broker can have a rack"),
        ("nodes: {1: {rack: b}}\nbrokers: 2", "either every broker must have a rack or none"),
        ("settings: {node.id: 1}", "node.id: `up` sets it for each node"),
        ("nodes: {1: {settings: {log.dirs: x}}}", "log.dirs: `up` sets it for each node"),
        ("faults: [{at_seconds: 1, do: pause}]", "faults.0: pause needs nodes"),
        ("faults: [{at_seconds: 1, do: cut, nodes: [1]}]", "faults.0: cut needs a link"),
        ("faults: [{at_seconds: -1, do: kill, nodes: [1]}]", "faults.0.at_seconds: -1: "),
        ("faults: [{do: kill, nodes: [1]}]", "faults.0: missing key 'at_seconds'"),
        ("faults: [{at_seconds: 1, do: kill, nodes: [5]}]", "faults: unknown node 5"),
        ("links: [{between: [1, 101]}]", "links need `network: isolated`"),
        ("network: isolated\nlinks: [{between: [1, 9]}]", "a link: unknown node 9"),
        ("network: isolated\nlinks: [{between: [1, 1]}]", "invalid link: both ends are 1"),
        ("network: isolated\nlinks: [{between: [1]}]", "links.0.between: [1]: list should have"),
        (f"racks: [{'x' * 200}, 1]", "racks.1: 1: "),
    ],
)
def test_invalid_document_error_has_place_value_and_allowed_values(text, said):
    with pytest.raises(BadDocument) as refused:
        parse(Testbed, text)
    assert said in str(refused.value)


def test_invalid_document_error_lists_all_faults():
    with pytest.raises(BadDocument) as refused:
        parse(Testbed, "brokers: 0\nport: -1")
    assert len(str(refused.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--file", "/nowhere"], "kraftbox: --file /nowhere: No such file or directory\n"),
        (["--file", "/dev/null"], "kraftbox: /dev/null: expected a map with the keys"),
        (["--file", "/dev/null", "--brokers", "2"], "--brokers: not allowed with --file"),
    ],
)
def test_a_bad_testbed_starts_nothing_and_leaves_nothing(capsys, tmp_path, arguments, said):
    directory = tmp_path / "d"
    assert program.run(["up", "--dir", str(directory), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not directory.exists()


# --- what follows the nodes -----------------------------------------------------------------------


def test_faults_are_done_and_undone_in_their_time(file):
    document = testbed.read(str(file)).after
    steps = timeline(json.loads(json.dumps(document)))
    assert [(step.at_s, step.text) for step in steps] == [
        (3.0, "pause 1"),
        (3.0, "pause 101"),
        (4.0, "kill 3"),
        (5.0, "resume 1"),
        (5.0, "resume 101"),
        (5.0, "cut 3-2"),
        (6.0, "heal 3-2"),
    ]
    # Healed is the initial state of the testbed.
    there, back = steps[-1].rules
    assert there == LinkRule(3, 2, WHOLE)
    assert (back.source, back.target, back.link.loss) == (2, 3, 0.1)
    delayed = testbed.starting_links(document)[:2]
    assert [(rule.source, rule.target, rule.link.delay_ms) for rule in delayed] == [
        (1, 0, 5.0),
        (0, 1, 5.0),
    ]


def test_testbed_continues_after_a_failed_fault(monkeypatch, tmp_path, capsys):
    done = []

    def act(place, action, node_id, wait_ms):
        done.append((action, node_id))
        if node_id == 1:
            raise control.RequestFailed("it is down")

    monkeypatch.setattr(control, "act", act)
    steps = [Step(0.0, "kill 1", "kill", 1), Step(0.0, "kill 2", "kill", 2)]
    testbed._do_faults(ClusterPlace(tmp_path), steps)
    assert done == [("kill", 1), ("kill", 2)]
    clock, *lines = re.split(r"kraftbox: [\d-]{10} [\d:]{8}Z ", capsys.readouterr().err)
    assert (clock, lines) == ("", ["0 s: kill 1: it is down\n", "0 s: kill 2\n"])


def test_topics_that_cannot_be_made_end_the_start(monkeypatch, tmp_path):
    command = ["sh", "-c", "read line; echo kraftbox: no such topic: $line >&2; exit 1"]
    monkeypatch.setattr(start, "own_command", lambda *_: command)
    with pytest.raises(StartupRefused, match='^no such topic: {"faults": '):
        start.Testbed(ClusterPlace(tmp_path), {"faults": []}).prepare("h:1")


def test_faults_end_with_the_cluster(monkeypatch, tmp_path):
    log = tmp_path / "log"
    command = ["sh", "-c", "read line; cat; echo ended >&2"]
    monkeypatch.setattr(start, "own_command", lambda *_: command)
    made = start.Testbed(ClusterPlace(tmp_path), {"faults": [1]})
    with log.open("w") as written:
        made.start_faults(written.fileno())
        made.end()
    assert log.read_text() == "ended\n"
    idle = start.Testbed(ClusterPlace(tmp_path), {"faults": []})
    idle.start_faults(None)
    idle.end()


# --- settings of single nodes ---------------------------------------------------------------------


def test_settings_of_single_nodes_are_remembered_and_win(tmp_path):
    place = ClusterPlace(tmp_path)
    own = {2: {"log.retention.hours": "5"}}
    shape, settings = AskedShape(1, 2), {"log.retention.hours": "1"}
    known, plans = plan_cluster(place, shape, 0, settings, "c", own_settings=own)
    place.keep(known)
    assert [plan.properties["log.retention.hours"] for plan in plans] == ["1", "5", "1"]
    assert "layout.version=2\n" in place.properties.read_text()
    again, plans = plan_cluster(
        place, None, None, {}, "c", own_settings={2: {"num.io.threads": "9"}}
    )
    assert again.own_settings == {2: {"log.retention.hours": "5", "num.io.threads": "9"}}
    assert plans[1].properties["num.io.threads"] == "9"
    with pytest.raises(StartupRefused, match="--set log.dirs"):
        plan_cluster(place, None, None, {}, "c", own_settings={1: {"log.dirs": "x"}})


# --- schemas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_document_has_a_schema(capsys, name):
    assert program.run(["schema", name]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["properties"] and schema["description"]


def test_names_of_schemas(capsys):
    assert program.run(["schema"]) == 0
    assert capsys.readouterr().out.split() == list(NAMES)
    assert program.run(["schema", "x"]) == 2
    assert "invalid document 'x'; allowed: testbed, chaos-schedule" in " ".join(
        capsys.readouterr().err.replace("│", " ").split()
    )


def test_every_key_of_a_testbed_that_is_no_list_of_others_is_explained():
    for name, field in Testbed.model_fields.items():
        assert field.description or name in ("controllers", "brokers"), name


@pytest.mark.parametrize(
    "text",
    [
        '{"partitions": [{"topic": "t", "partition": 0}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "desiredLeader": 2}], "version": 1}',
        '{"partitions": []}',
        "{}",
        '{"partitions": [{"topic": "", "partition": 0}]}',
        '{"partitions": [{"topic": "t", "partition": -1}]}',
        '{"partitions": [{"topic": "t", "partition": true}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "desiredLeader": 2147483648}]}',
        '{"partitions": [1]}',
    ],
)
def test_the_schema_of_election_files_is_what_is_read(tmp_path, text):
    file = tmp_path / "f"
    file.write_text(text)

    def works(read, error):
        try:
            read()
        except error:
            return False
        return True

    by_model = works(lambda: parse(ElectionFile, text), BadDocument)
    assert works(lambda: read_election_file(file), CommandFailed) == by_model
