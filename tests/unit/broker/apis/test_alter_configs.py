"""AlterConfigs and IncrementalAlterConfigs: parts that a broker answers itself, parts it
forwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.headers import decode_request_header, response_header_bytes
from protocol.messages import request_class, response_class
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from runtime import log
from testkit.memory.broker import NODE, Harness

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Change: TypeAlias = tuple[str, int, str | None]
Resource: TypeAlias = tuple[int, str, list[Change]]


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    before = log.level()
    yield
    log.set_level(before)


class Controller:
    """A controller that accepts everything and records the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def answer(self, envelope: EnvelopeRequest) -> EnvelopeResponse:
        header, offset = decode_request_header(envelope.request_data)
        api = ApiKey(header.api_key)
        inner: Any = decode(request_class(api), envelope.request_data, header.api_version, offset)[
            0
        ]
        self.asked += [(each.resource_type, each.resource_name) for each in inner.resources]
        response: Any = response_class(api)()
        response.responses = [
            response.AlterConfigsResourceResponse(
                resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in inner.resources
        ]
        prefix = response_header_bytes(api, header.api_version, header.correlation_id)
        return EnvelopeResponse(response_data=prefix + encode(response, header.api_version))


def incremental(*resources: Resource, **fields: Any) -> IncrementalAlterConfigsRequest:
    message = IncrementalAlterConfigsRequest
    return message(
        resources=[
            message.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    message.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
        **fields,
    )


def full(*resources: Resource) -> AlterConfigsRequest:
    message = AlterConfigsRequest
    return message(
        resources=[
            message.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[message.AlterableConfig(name=key, value=text) for key, _, text in changes],
            )
            for kind, name, changes in resources
        ]
    )


async def ask(
    h: Harness, request: Any, version: int = 1
) -> tuple[dict[tuple[int, str], ErrorCode], list[tuple[int, str]]]:
    """Return the outcome of each resource, and the resources that the controller received."""
    controller = Controller()
    h.controller.answer = controller.answer
    reply: Any = await h.call(request, version)
    if not hasattr(reply, "responses"):
        kind = response_class(ApiKey(request.API_KEY))
        reply, _ = decode(kind, b"".join(bytes(part) for part in reply.parts), version)
    outcomes = {
        (each.resource_type, each.resource_name): ErrorCode(each.error_code)
        for each in reply.responses
    }
    return outcomes, controller.asked


@pytest.mark.parametrize("version", [0, 1])
async def test_alter_configs_forwards_all_resources_of_the_controller(version: int) -> None:
    request = incremental(
        (TOPIC, "t", [("flush.ms", SET, "1")]), (GROUP, "g", [("share.isolation.level", SET, "x")])
    )
    outcomes, asked = await ask(Harness(), request, version)
    assert list(outcomes) == asked == [(TOPIC, "t"), (GROUP, "g")]


async def test_levels_of_loggers_are_changed_here() -> None:
    request = incremental((LOGGER, str(NODE), [("root", SET, "WARN")]))
    outcomes, asked = await ask(Harness(), request)
    assert outcomes == {(LOGGER, str(NODE)): ErrorCode.NONE}
    assert asked == []
    assert log.level() == "warning"


async def test_levels_and_topics_in_one_request() -> None:
    request = incremental(
        (TOPIC, "t", [("flush.ms", SET, "1")]), (LOGGER, str(NODE), [("root", SET, "ERROR")])
    )
    outcomes, asked = await ask(Harness(), request)
    assert set(outcomes.values()) == {ErrorCode.NONE}
    assert asked == [(TOPIC, "t")]
    assert log.level() == "error"


async def test_validate_only_changes_no_level() -> None:
    before = log.level()
    request = incremental((LOGGER, str(NODE), [("root", SET, "ERROR")]), validate_only=True)
    outcomes, _ = await ask(Harness(), request)
    assert outcomes == {(LOGGER, str(NODE)): ErrorCode.NONE}
    assert log.level() == before


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ((LOGGER, "2", [("root", SET, "INFO")]), ErrorCode.INVALID_REQUEST),
        ((LOGGER, "1", [("root", SET, "LOUD")]), ErrorCode.INVALID_CONFIG),
        ((LOGGER, "1", [("root", DELETE, None)]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "2", [("log.cleaner.threads", SET, "2")]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "x", [("log.cleaner.threads", SET, "2")]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "1", [("node.id", SET, "2")]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "", [("listeners", SET, "A://:1")]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "1", [("log.roll.ms", SET, "0")]), ErrorCode.INVALID_REQUEST),
        (
            (BROKER, "", [("max.connections.per.ip.overrides", SET, "a:b")]),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_refusals_of_the_broker(resource: Resource, code: ErrorCode) -> None:
    outcomes, asked = await ask(Harness(), incremental(resource))
    assert outcomes == {resource[:2]: code}
    assert asked == []


@pytest.mark.parametrize("name", ["", str(NODE)])
async def test_values_of_brokers_that_fit_go_on(name: str) -> None:
    h = Harness()
    h.set_config("", "log.retention.ms", "5", resource_type=BROKER)
    changes: list[Change] = [
        ("log.cleaner.threads", SET, "2"),
        ("log.retention.ms", DELETE, None),
        ("log.cleanup.policy", APPEND, "compact"),
        ("my.reporter.url", SET, "x"),
    ]
    outcomes, asked = await ask(h, incremental((BROKER, name, changes)))
    assert outcomes == {(BROKER, name): ErrorCode.NONE}
    assert asked == [(BROKER, name)]


async def test_alter_configs_ignores_invalid_stored_value_of_another_key() -> None:
    h = Harness()
    h.set_config(str(NODE), "log.roll.ms", "0", resource_type=BROKER)
    request = incremental((BROKER, str(NODE), [("log.cleaner.threads", SET, "2")]))
    outcomes, _ = await ask(h, request)
    assert outcomes == {(BROKER, str(NODE)): ErrorCode.NONE}


async def test_a_resource_named_twice_is_refused_once() -> None:
    one: Resource = (LOGGER, str(NODE), [("root", SET, "INFO")])
    outcomes, asked = await ask(Harness(), incremental(one, one))
    assert outcomes == {one[:2]: ErrorCode.INVALID_REQUEST}
    assert asked == []


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_all_values_at_once(version: int) -> None:
    h = Harness()
    fits = full((BROKER, str(NODE), [("log.cleaner.threads", SET, "2")]))
    outcomes, asked = await ask(h, fits, version)
    assert outcomes == {(BROKER, str(NODE)): ErrorCode.NONE}
    assert asked == [(BROKER, str(NODE))]
    outcomes, asked = await ask(h, full((BROKER, "1", [("log.roll.ms", SET, "0")])), version)
    assert outcomes == {(BROKER, "1"): ErrorCode.INVALID_REQUEST}
    # Log levels cannot be changed by replacing all of them: the controller knows no such resource.
    _, asked = await ask(h, full((LOGGER, "1", [("root", SET, "INFO")])), version)
    assert asked == [(LOGGER, "1")]


async def test_alter_configs_without_controller_fails_forwarded_resources_only() -> None:
    h = Harness()
    h.controller.answer = lambda _: EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    request = incremental(
        (TOPIC, "t", [("flush.ms", SET, "1")]), (LOGGER, str(NODE), [("root", SET, "INFO")])
    )
    reply: Any = await h.call(request)
    assert {(each.resource_type, each.error_code) for each in reply.responses} == {
        (LOGGER, ErrorCode.NONE),
        (TOPIC, ErrorCode.UNKNOWN_SERVER_ERROR),
    }
