"""A container's environment, converted to a server.properties."""

import os
import stat

import pytest

from kraftbox.process import container
from kraftbox.process.container import (
    HTTP_LISTENER,
    Places,
    choose_cluster_id,
    properties_for,
    write_properties,
)
from kraftbox.process.properties import read_properties
from runtime import log
from runtime.errors import StartupRefused

BUNDLED = {"node.id": "1", "process.roles": "broker,controller"}


def test_nothing_given_means_what_is_bundled():
    assert properties_for({"HOME": "/"}, {}, BUNDLED) == {
        **BUNDLED,
        HTTP_LISTENER: "0.0.0.0:9404",
    }


def test_the_environment_replaces_what_is_bundled_and_wins_over_a_mounted_file():
    environ = {"KAFKA_NODE_ID": "7", "KAFKA_KRAFTBOX_HTTP_LISTENER": "0.0.0.0:1"}
    assert properties_for(environ, {}, BUNDLED) == {"node.id": "7", HTTP_LISTENER: "0.0.0.0:1"}
    found = properties_for(environ, {"node.id": "3", "log.dirs": "/d"}, BUNDLED)
    assert (found["node.id"], found["log.dirs"]) == ("7", "/d")


def test_listeners_follow_from_advertised_ones():
    environ = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://a:9092,OUT://b.c:29092"}
    found = properties_for(environ, {}, BUNDLED)
    assert found["listeners"] == "PLAINTEXT://0.0.0.0:9092,OUT://0.0.0.0:29092"
    given = {**environ, "KAFKA_LISTENERS": "PLAINTEXT://:1"}
    assert properties_for(given, {}, BUNDLED)["listeners"] == "PLAINTEXT://:1"
    empty = {**environ, "KAFKA_LISTENERS": ""}
    assert properties_for(empty, {}, BUNDLED)["listeners"].startswith("PLAINTEXT://0.0.0.0:9092")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        (
            {
                "KAFKA_PROCESS_ROLES": "controller",
                "CLUSTER_ID": "x",
                "KAFKA_ADVERTISED_LISTENERS": "A://b:1",
            },
            "KAFKA_ADVERTISED_LISTENERS is not supported",
        ),
    ],
)
def test_invalid_container_environment_is_refused(environ, said):
    with pytest.raises(StartupRefused, match=said):
        properties_for(environ, {}, BUNDLED)


def test_container_configures_and_launches_in_two_steps(tmp_path, monkeypatch, capsys):
    """Starters of Testcontainers source configure, and execute launch when the ports are known."""
    places = Places(*(tmp_path / name for name in ("bundled", "mounted", "final")))
    for place in places:
        place.mkdir()
    monkeypatch.setattr(container, "Places", lambda: places)
    monkeypatch.setenv("KAFKA_NODE_ID", "7")
    launched = []
    monkeypatch.setattr(container, "launch", lambda environ, path: launched.append(path) or 3)
    assert container.main(["configure"]) == 0 and not launched
    path = places.final / "server.properties"
    assert read_properties(path)["node.id"] == "7"
    assert container.main(["launch"]) == 3
    assert container.main([]) == 3
    assert launched == [path, path]
    assert container.main(["stop"]) == 1
    assert "allowed: configure, launch" in capsys.readouterr().err


def test_properties_need_no_cluster_id():
    """Compose files for apache/kafka set KAFKA_PROCESS_ROLES and usually no CLUSTER_ID."""
    assert properties_for({"KAFKA_PROCESS_ROLES": "broker"}, {}, BUNDLED) == {
        "process.roles": "broker",
        HTTP_LISTENER: "0.0.0.0:9404",
    }


@pytest.mark.parametrize(
    ("wanted", "formatted", "chosen", "logged"),
    [
        (None, None, "5L6g3nShT-eMCtK--X86sw", "INFO CLUSTER_ID is not set"),
        ("", None, "5L6g3nShT-eMCtK--X86sw", "INFO CLUSTER_ID is not set"),
        ("mine", None, "mine", ""),
        (None, "old", "old", ""),
        ("old", "old", "old", ""),
        ("mine", "old", "old", "WARNING the log directory is formatted for another cluster"),
    ],
)
def test_container_formats_with_the_directorys_cluster_id_or_a_default(
    wanted, formatted, chosen, logged
):
    """As in Kafka's image: its default is 5L6g..., and a formatted volume stays unchanged."""
    lines = []
    log.configure(write=lines.append)
    try:
        assert choose_cluster_id(wanted, formatted) == chosen
    finally:
        log.configure()
    said = b"".join(lines).decode()
    assert logged in said if logged else not said


def test_a_controller_may_have_an_empty_advertised_listener():
    environ = {
        "KAFKA_PROCESS_ROLES": "controller",
        "CLUSTER_ID": "x",
        "KAFKA_ADVERTISED_LISTENERS": "",
        "KAFKA_JMX_PORT": "9101",
    }
    found = properties_for(environ, {}, BUNDLED)
    assert found == {"process.roles": "controller", HTTP_LISTENER: "0.0.0.0:9404"}


def test_the_result_is_written(tmp_path):
    places = Places(*(tmp_path / name for name in ("bundled", "mounted", "final")))
    for place in places:
        place.mkdir()
    (places.mounted / "server.properties").write_text("node.id=3\nlog.dirs=/d\n")
    path = write_properties(places, {"KAFKA_NODE_ID": "4"})
    written = read_properties(path)
    assert (written["node.id"], written["log.dirs"]) == ("4", "/d")
    # An empty mounted file counts as a missing one.
    (places.mounted / "server.properties").write_text("\n")
    (places.bundled / "server.properties").write_text("node.id=1\n")
    assert read_properties(write_properties(places, {}))["node.id"] == "1"
    path.unlink()
    path.mkdir()
    with pytest.raises(StartupRefused, match="cannot write"):
        write_properties(places, {})


@pytest.mark.parametrize("before", [None, 0o644, 0o666])
def test_written_properties_are_for_the_owner_only(tmp_path, before):
    """The file contains KAFKA_SSL_KEYSTORE_PASSWORD and similar keys."""
    path = tmp_path / "server.properties"
    if before is not None:
        path.write_text("old=1\n")
        path.chmod(before)
    inode = path.stat().st_ino if before is not None else None
    old = os.umask(0)
    try:
        write_properties(Places(tmp_path, tmp_path, tmp_path), {"KAFKA_RSM_CONFIG_KEY": "secret"})
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # A file that is mounted by itself cannot be replaced.
    assert inode in (None, path.stat().st_ino)
    assert read_properties(path)["rsm.config.key"] == "secret"
