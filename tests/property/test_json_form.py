"""Messages as JSON, with an exact round trip."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from protocol.json_form import from_json, to_json
from protocol.schema import Message
from testkit.records.messages import message_classes, messages_of, name_of


def has_records(cls: type[Message]) -> bool:
    structs = (cls, *cls.structs().values())
    return any(f.kind.name == "records" for struct in structs for f in struct.FIELDS)


@pytest.mark.parametrize(
    "cls", [cls for cls in message_classes() if not has_records(cls)], ids=name_of
)
def test_json_and_back(cls: type[Message]) -> None:
    version = cls.VERSIONS.last

    @settings(
        max_examples=2,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(messages_of(cls, version))
    def run(msg: Message) -> None:
        text = json.dumps(to_json(msg, version))
        assert from_json(cls, json.loads(text), version) == msg

    run()
