"""deploy/snippets: readable files whose commands, options and keys exist.

Snippets for other programs are checked against their schemas, too (extra `dev`).
"""

import configparser
import json
import re
from pathlib import Path

import pytest

from kraftbox.__main__ import main
from kraftbox.process.container import check_environment, properties_for
from kraftbox.process.properties import read_properties
from runtime.config import NodeConfig

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
SNIPPETS = ROOT / "deploy/snippets"
NO_SCHEMAS = "needs the schemas of others (docs/gaps.md)"
BUNDLED = read_properties(ROOT / "deploy/image/etc/server.properties")


def text(name):
    return (SNIPPETS / name).read_text(encoding="utf-8")


def node_config(environ):
    """Return a node's configuration from the image's environment. Every key must be known.

    Keys of Kafka's own image may be without effect here.
    """
    check_environment(environ)
    config = NodeConfig.parse(properties_for(environ, {}, BUNDLED))
    assert [one for one in config.warnings if "not a known configuration key" in one] == []
    return config.given


USED = [
    ("github-actions.yml", ["up", "--detach", "--dir"]),
    ("github-actions.yml", ["down", "--dir"]),
    ("devcontainer/devcontainer.json", ["up", "--detach", "--dir"]),
    ("kraftbox.service", ["storage", "format", "--config", "--cluster-id", "--ignore-formatted"]),
    ("kraftbox.service", ["server"]),
    ("kraftbox.service", ["storage", "random-uuid"]),
    ("kubernetes.yml", ["storage", "random-uuid"]),
]


@pytest.mark.parametrize(("name", "words"), USED)
def test_commands_and_options_exist(name, words, capsys):
    command = [word for word in words if not word.startswith("--")]
    assert f"kraftbox {' '.join(command)}" in text(name)
    assert all(word in text(name) for word in words)
    assert main([*command, "--help"]) == 0
    told = capsys.readouterr().out
    assert [word for word in words if word.startswith("--") and word not in told] == []


def test_no_command_of_a_snippet_is_left_out():
    named = set()
    for path in sorted(SNIPPETS.rglob("*.*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for found in re.finditer(r"\bkraftbox ((?:up|down|server|storage [a-z-]+)\b)", line):
                named.add((path.relative_to(SNIPPETS).as_posix(), found[1]))
    listed = {
        (name, " ".join(word for word in words if not word.startswith("--")))
        for name, words in USED
    }
    assert named == listed


def test_github_waits_for_the_node():
    jobs = yaml.safe_load(text("github-actions.yml"))["jobs"]
    service = jobs["with-the-image"]["services"]["kafka"]
    assert "--health-cmd /etc/kafka/docker/healthcheck" in service["options"]
    assert (ROOT / "deploy/image/etc/healthcheck").exists()
    assert service["ports"] == ["127.0.0.1:9092:9092"]
    advertised = node_config({})["advertised.listeners"]
    assert advertised == f"PLAINTEXT://{jobs['with-the-image']['env']['BOOTSTRAP_SERVERS']}"


def test_gitlab_snippet_advertises_its_bootstrap_address():
    job = yaml.safe_load(text("gitlab-ci.yml"))["test"]
    given = node_config(job["variables"])
    assert job["services"][0]["alias"] == "kafka"
    assert given["advertised.listeners"] == f"PLAINTEXT://{job['variables']['BOOTSTRAP_SERVERS']}"


def test_a_devcontainer_forwards_the_port():
    found = json.loads(text("devcontainer/devcontainer.json"))
    assert found["forwardPorts"] == [9092]
    assert found["remoteEnv"]["BOOTSTRAP_SERVERS"] == "localhost:9092"


def test_a_unit_of_systemd_is_sections_of_known_names():
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str
    parser.read_string(text("kraftbox.service"))
    assert parser.sections() == ["Unit", "Service", "Install"]
    assert parser["Service"]["ExecStart"].endswith(
        "/kraftbox server /etc/kraftbox/server.properties"
    )
    assert int(parser["Service"]["TimeoutStopSec"]) >= 40


def test_kubernetes_runs_three_nodes_that_find_each_other():
    service, _, nodes = yaml.safe_load_all(text("kubernetes.yml"))
    (container,) = nodes["spec"]["template"]["spec"]["containers"]
    labels = nodes["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == nodes["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    environ = {one["name"]: one["value"] for one in container["env"]}
    name, headless = nodes["metadata"]["name"], nodes["spec"]["serviceName"]
    assert headless == service["metadata"]["name"]
    voters = environ["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
    assert voters == [
        f"{index}@{name}-{index}.{headless}:9093" for index in range(nodes["spec"]["replicas"])
    ]
    script = container["args"][0]
    assert script.endswith("exec /etc/kafka/docker/run")
    for index in range(nodes["spec"]["replicas"]):
        host = f"{name}-{index}"
        own = dict(re.findall(r'(KAFKA_\w+)="([^"]*)"', script))
        told = {
            key: value.replace("${HOSTNAME##*-}", str(index)).replace("${HOSTNAME}", host)
            for key, value in own.items()
        }
        given = node_config({**environ, **told})
        assert given["node.id"] == str(index)
        assert given["advertised.listeners"] == f"PLAINTEXT://{host}.{headless}:9092"
    (mount,) = container["volumeMounts"]
    assert environ["KAFKA_LOG_DIRS"].startswith(mount["mountPath"])
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {one["name"]: one["port"] for one in service["spec"]["ports"]}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("github-workflows", "deploy/snippets/github-actions.yml"),
        ("gitlab-ci", "deploy/snippets/gitlab-ci.yml"),
        ("compose-spec", "docker-compose.yml"),
    ],
)
def test_a_schema_of_others_holds(schema, path):
    checker = pytest.importorskip("check_jsonschema", reason=NO_SCHEMAS)
    with pytest.raises(SystemExit) as ended:
        checker.main(["--builtin-schema", f"vendor.{schema}", str(ROOT / path)])
    assert ended.value.code == 0


@pytest.mark.parametrize("path", ["deploy/snippets/kubernetes.yml"])
def test_kubernetes_takes_each_object(path):
    """The check is strict: an unknown field is an error."""
    validate = pytest.importorskip("kubernetes_validate", reason=NO_SCHEMAS)
    objects = list(yaml.safe_load_all((ROOT / path).read_text(encoding="utf-8")))
    assert {"Service", "StatefulSet"} <= {one["kind"] for one in objects}
    for one in objects:
        validate.validate(one, validate.latest_version(), strict=True)


def published(value):
    """Yield every port of `ports` below services, wherever in the document."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key == "services" and isinstance(one, dict):
                for service in one.values():
                    yield from service.get("ports", ())
            yield from published(one)
    elif isinstance(value, list):
        for one in value:
            yield from published(one)


PUBLISHING = [
    "docker-compose.yml",
    "deploy/snippets/github-actions.yml",
    "tests/compose/files/combined.yml",
    "tests/compose/files/isolated.yml",
    "tests/compose/files/single.yml",
]


@pytest.mark.parametrize("path", PUBLISHING)
def test_ports_without_authentication_are_published_on_the_loopback_address(path):
    """Without an address Docker publishes on all interfaces, past the host's firewall."""
    ports = list(published(yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))))
    assert ports
    assert [
        port
        for port in ports
        if not str(port).startswith(("127.0.0.1:", "${PUBLISH_ON:-127.0.0.1}:"))
    ] == []


def test_every_file_that_publishes_ports_is_checked():
    files = [*ROOT.glob("*.yml"), *(ROOT / "deploy").rglob("*.y*ml")]
    files += (ROOT / "tests").rglob("*.y*ml")
    found = {
        str(path.relative_to(ROOT))
        for path in files
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if list(published(document))
    }
    assert found == set(PUBLISHING)
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not re.search(r"docker run.*(-p|--publish) \d+:", line), (path, line)
