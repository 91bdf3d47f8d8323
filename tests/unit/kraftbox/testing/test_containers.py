"""The container without Docker: its start command and settings are valid for a node.

tests/compose starts it.
"""

import io
import subprocess
import tarfile

import pytest

from kraftbox.process.container import properties_for
from runtime.config import NodeConfig

pytest.importorskip("testcontainers")
from kraftbox.testing import containers


class Wrapped:
    def __init__(self):
        self.files = {}

    def put_archive(self, path, data):
        assert path == "/"
        with tarfile.TarFile(fileobj=io.BytesIO(data)) as archive:
            for entry in archive.getmembers():
                self.files[entry.name] = archive.extractfile(entry).read()


@pytest.fixture
def container(monkeypatch):
    """Return a started container without a daemon."""
    base = containers.DockerContainer
    monkeypatch.setattr("testcontainers.core.container.DockerClient", lambda **_: None)
    monkeypatch.setattr(base, "start", lambda self: self)
    monkeypatch.setattr(base, "get_container_host_ip", lambda _: "docker.test")
    monkeypatch.setattr(base, "get_exposed_port", lambda _, port: {9092: 32768}[port])
    monkeypatch.setattr(containers.LogMessageWaitStrategy, "wait_until_ready", lambda *_: None)
    monkeypatch.setenv("KRAFTBOX_IMAGE", "registry/kraftbox:9")
    made = containers.KraftboxContainer(configs={"num.partitions": 3, "x_y-z": True})
    wrapped = Wrapped()
    monkeypatch.setattr(made, "get_wrapped_container", lambda: wrapped)
    made.start()
    return made, wrapped


def test_the_environment_and_the_script_are_a_nodes_configuration(container, tmp_path):
    made, wrapped = container
    assert made.image == "registry/kraftbox:9"
    assert made.env["KAFKA_X__Y___Z"] == "true"
    (script,) = wrapped.files.values()
    path = tmp_path / "start"
    path.write_bytes(script.replace(b"exec /etc/kafka/docker/run", b"env"))
    done = subprocess.run(["sh", path], env=made.env, capture_output=True, text=True, check=True)
    environ = dict(line.split("=", 1) for line in done.stdout.splitlines())
    config = NodeConfig.parse(properties_for(environ, {}, {}))
    assert config.warnings == ["x_y-z is not a known configuration key and has no effect"]
    assert config.given["num.partitions"] == "3"
    advertised = config.given["advertised.listeners"]
    assert advertised == "PLAINTEXT://docker.test:32768,NETWORK://localhost:9094"


def test_container_command_waits_for_the_script(container, tmp_path):
    made, _ = container
    shell, option, command = made._command
    assert (shell, option) == ("sh", "-c") and "/tmp/kraftbox-start" in command
    script = tmp_path / "start"
    waiting = command.replace("/tmp/kraftbox-start", str(script))
    process = subprocess.Popen([shell, option, waiting], stdout=subprocess.PIPE, text=True)
    script.write_text("echo started\n")
    assert process.communicate(timeout=30)[0] == "started\n"
