"""Our private numbers compared with the definitions of the Kafka release that we follow.

If Kafka defines one of them, nodes of both kinds attach different meanings to the same bytes: the
number must then move before anything else is built on it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from protocol.private_numbers import (
    PRIVATE_ERROR_CODES,
    PRIVATE_KEYS,
    PRIVATE_MIN,
    PRIVATE_VERSIONS,
)
from protocol.schema import parse_versions
from testkit.kafka.beyond import BEYOND_KAFKA
from testkit.kafka.jars import ORACLE, PREVIOUS, java_program, kafka_libs
from tools.generate_messages import definitions

pytestmark = [
    pytest.mark.interop,
    pytest.mark.core,
    pytest.mark.parametrize("version", [PREVIOUS, ORACLE]),
]

ERROR_CODES = Path(__file__).parent / "java/ErrorCodes.java"


def jars_of(version: str) -> Path:
    libs = kafka_libs(version)
    if libs is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    return libs


def tags_of(definition: dict[str, Any]) -> list[int]:
    """Return all tags of a message definition, also those of nested structs."""
    pending = [
        definition.get("fields", []),
        *(s["fields"] for s in definition.get("commonStructs", [])),
    ]
    found = []
    while pending:
        for field in pending.pop():
            found.append(field.get("tag", 0))
            pending.append(field.get("fields", []))
    return found


def test_kafka_defines_no_private_key_version_or_tag(version: str) -> None:
    """Keys, versions and tags of the jars' message definitions stay below ours."""
    found = list(definitions(jars_of(version)))
    requests = {d["apiKey"]: d for d in found if d["type"] == "request"}
    assert max(requests) < PRIVATE_MIN
    assert requests.keys().isdisjoint(PRIVATE_KEYS)
    for key, private in PRIVATE_VERSIONS.items():
        assert parse_versions(requests[key]["validVersions"]).last == private - 1, key
    assert max(tag for definition in found for tag in tags_of(definition)) < PRIVATE_MIN
    private_tags = [tag for beyond in BEYOND_KAFKA.values() for tag in beyond.tagged.values()]
    assert min(private_tags) >= PRIVATE_MIN


def test_kafka_defines_no_private_error_code(version: str, tmp_path: Path) -> None:
    """Error codes of the client library stay below ours."""
    command = java_program(ERROR_CODES, tmp_path, version)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    codes = {int(line.split()[0]) for line in done.stdout.splitlines()}
    assert len(codes) > 100
    assert max(codes) < PRIVATE_MIN <= min(PRIVATE_ERROR_CODES)
