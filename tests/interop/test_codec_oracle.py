"""Kafka's own classes as an oracle: they decode our bytes, encode the same, and give the same JSON.

This covers every message in every version, including those that no Python library has: metadata
records, records of the internal topics, KRaft's control records and its state file.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from protocol import codec
from protocol.json_form import camel, to_json
from protocol.schema import Message
from testkit.kafka.beyond import kafka_versions
from testkit.kafka.jars import java_program, kafka_libs
from testkit.records.messages import EXAMPLES, message_versions, messages_of

pytestmark = pytest.mark.interop

SOURCE = Path(__file__).parent / "java/kafka-tools/CodecOracle.java"
RUN_TIMEOUT_S = 300
PRIVATE_TAG_MIN = 10000


def values(cls: type[Message], version: int) -> list[Message]:
    found: list[Message] = []
    # Java writes infinities into JSON in a way of its own.
    scalars = {"float64": st.floats(allow_nan=False, allow_infinity=False)}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(messages_of(cls, version, unknown_tags=True, scalars=scalars))
    def collect(msg: Message) -> None:
        found.append(msg)

    collect()
    return found


def without_private_fields(msg: Message, version: int) -> dict[str, Any]:
    """Remove tags that Kafka does not know: it keeps them in the bytes, and omits them in its
    JSON."""
    private = {camel(f.name) for f in msg.FIELDS if f.tag is not None and f.tag >= PRIVATE_TAG_MIN}
    return {name: value for name, value in to_json(msg, version).items() if name not in private}


def test_kafka_reads_and_writes_the_same(tmp_path: Path) -> None:
    if kafka_libs() is None:
        pytest.skip("no Java or Maven to get Kafka's jars with (docs/gaps.md)")
    cases = [
        (cls, version, msg)
        for cls, version in message_versions()
        if version in kafka_versions(cls)
        for msg in values(cls, version)
    ]
    questions = [
        f"{cls.__name__} {version} {codec.encode(msg, version).hex()}"
        for cls, version, msg in cases
    ]
    done = subprocess.run(
        java_program(SOURCE, tmp_path),
        input="\n".join(questions),
        capture_output=True,
        encoding="utf-8",
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    answers = done.stdout.removesuffix("\n").split("\n")
    assert len(answers) == len(cases), done.stderr
    for (cls, version, msg), question, answer in zip(cases, questions, answers, strict=True):
        name, _, hexed = question.split(" ")
        again, _, text = answer.partition(" ")
        assert again == hexed, (name, version, msg, answer)
        assert json.loads(text) == without_private_fields(msg, version), (name, version)
        assert cls.__name__ == name
