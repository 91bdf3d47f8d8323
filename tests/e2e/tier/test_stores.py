"""A real node over each kind of store: a topic is copied and read back, and leaves no object.

tests/unit/storage/objects tests the stores behind the port; here a broker uses them, with segments
uploaded in parts. If the server checks keys, the node has a wrong one at first (S9).
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftbox.process.properties import read_properties
from testkit.processes.nodes import KraftboxNode
from testkit.processes.object_servers import PART_BYTES, Servers
from testkit.processes.waiting import until
from tests.e2e.numbers import create_topic, read_numbers
from tests.e2e.tier.node import (
    TOPIC,
    delete_topic,
    objects_in,
    segments,
    send,
    store_of,
    tier,
    tier_settings,
)

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("default")]

RECORDS = 3_200
NUMBER = b"%04000d"
"""4000 bytes a record."""
SEGMENT_BYTES = PART_BYTES + (1 << 20)
SECRETS = {"versitygw": "secret.access.key", "azurite": "account.key"}
"""Settings that the servers check; moto accepts any key."""


@pytest.fixture(params=["moto", "versitygw", "azurite"])
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(server: str, servers: Servers) -> dict[str, str]:
    return {**store_of(servers, server), "part.bytes": str(PART_BYTES)}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KraftboxNode]:
    made = KraftboxNode(tmp_path / "node")
    yield made
    made.kill()


def series(node: KraftboxNode, name: str) -> float:
    """Return the sum over all topics of one of the node's series."""
    at = read_properties(node.directory / "server.properties")["kraftbox.http.listener"]
    with urllib.request.urlopen(f"http://{at}/metrics", timeout=10) as answer:
        found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def lives_with_a_wrong_key(node: KraftboxNode, secret: str) -> None:
    """Check that copies fail with a warning, nothing leaves the disk, and produce continues."""
    name = f"rsm.config.{secret}"
    right, node.settings[name] = node.settings[name], node.settings[name].replace("t", "u")
    node.start()
    create_tiered(node)
    send(node, 0, RECORDS // 2, NUMBER)
    until("a copy failed", lambda: series(node, ERRORS) >= 2)
    send(node, RECORDS // 2, RECORDS // 2, NUMBER)
    told = (node.directory / "node.log").read_text()
    assert re.search(r"WARNING tier copy failed, trying again .*403 Forbidden", told)
    assert len(segments(node)) > 2 and segments(node)[0] == 0
    assert node.stop() == 0
    node.settings[name] = right
    node.start()


ERRORS = "kafka_server_brokertopicmetrics_remotecopyerrors_total"


def create_tiered(node: KraftboxNode) -> None:
    config = {
        "remote.storage.enable": "true",
        "internal.segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": "1",
    }
    create_topic(node.bootstrap, TOPIC, **config)


def test_a_topic_goes_to_the_store_and_comes_back_and_leaves_nothing(
    node: KraftboxNode, server: str, store: dict[str, str]
) -> None:
    node.settings = tier_settings(store)
    if server in SECRETS:
        lives_with_a_wrong_key(node, SECRETS[server])
    else:
        node.start()
        create_tiered(node)
        send(node, 0, RECORDS, NUMBER)
    until("all but the last segment left the disk", lambda: len(segments(node)) == 1)
    assert segments(node)[0] > RECORDS // 2
    assert max(one.size_bytes for one in objects_in(store)) > PART_BYTES
    assert read_numbers(node.bootstrap, TOPIC) == list(range(RECORDS))
    code, verified = tier(node, "verify")
    assert (code, verified["findings"]) == (0, [])
    assert series(node, "kafka_server_brokertopicmetrics_remotefetchbytes_total") > PART_BYTES
    delete_topic(node)
    until("the deleted topic's objects are gone", lambda: not objects_in(store), every_s=0.2)
