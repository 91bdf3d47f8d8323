"""Long requests, served in parts, and long responses, encoded in steps; both yield to others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from protocol.api_keys import ApiKey
from protocol.codec import decode
from protocol.decoding import FREED_AT_ONCE
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from protocol.transport.dispatch import EncodedReply, HandlerTable, RequestContext
from protocol.transport.long_requests import (
    PATIENCE_MS,
    AtOnce,
    InParts,
    LongRequests,
)
from runtime.slices import SLICE_MS, SharedSlices
from testkit.loop_holds import ToilClock, loop_holds
from testkit.memory.broker import Peer

ITEM_MS = 0.04
MANY = 5_000


class Served:
    """A table with one API whose handler is slow for each element."""

    def __init__(self, api: ApiKey, rule: Any, handler: Any, version: int) -> None:
        self.clock = ToilClock()
        self.slices = SharedSlices(self.clock)
        self.peer = Peer()
        self.asked: list[Any] = []
        self.table = HandlerTable()
        self.version = version

        def handle(context: RequestContext, request: Any) -> Any:
            self.asked.append(request)
            return handler(self, request)

        self.table.register(api, handle)
        self.api = api
        LongRequests(self.clock, self.slices).guard(self.table, {api: rule})

    def call(self, request: Any, size: int = 1 << 20) -> Any:
        context = RequestContext(
            cast(Any, self.peer), self.api, self.version, 1, "c", self.clock.monotonic_ms(),
            "User:ANONYMOUS", "h", "PLAINTEXT", size,
        )  # fmt: skip
        return self.table.entries[self.api].handler(context, request)

    async def ask(self, request: Any, size: int = 1 << 20) -> Any:
        reply = self.call(request, size)
        if asyncio.iscoroutine(reply) or asyncio.isfuture(reply):
            reply = await reply
        if isinstance(reply, EncodedReply):
            data = b"".join(reply.parts)
            reply, end = decode(self.table.entries[self.api].response, data, self.version)
            assert end == len(data)
        return reply


def delete(served: Served, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    served.clock.toil(ITEM_MS * len(request.groups_names))
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=name)
            for name in dict.fromkeys(request.groups_names)
        ]
    )


def groups(rule: Any = None, handler: Any = delete) -> Served:
    rule = rule or InParts(paths=(("groups_names",),), key=str)
    return Served(ApiKey.DELETE_GROUPS, rule, handler, 2)


def names(count: int) -> list[str]:
    return [f"g{n}" for n in range(count)]


async def test_a_short_request_goes_to_its_handler_as_it_is() -> None:
    served = groups()
    request = DeleteGroupsRequest(groups_names=names(3))
    assert isinstance(served.call(request, 60), DeleteGroupsResponse)
    assert served.asked == [request]


async def test_a_long_request_holds_the_loop_no_longer_than_a_slice() -> None:
    served = groups()
    async with loop_holds(served.clock) as holds:
        response = await served.ask(DeleteGroupsRequest(groups_names=names(MANY)))
    assert [result.group_id for result in response.results] == names(MANY)
    assert holds.longest_ms <= SLICE_MS + 100 * ITEM_MS


async def test_many_long_requests_together_hold_an_iteration_no_longer_than_one() -> None:
    served = groups()
    requests = [DeleteGroupsRequest(groups_names=names(1_000)) for _ in range(20)]
    async with loop_holds(served.clock) as holds:
        await asyncio.gather(*(served.ask(request) for request in requests))
    assert holds.longest_ms <= SLICE_MS + 100 * ITEM_MS


async def test_a_connection_is_held_until_its_long_request_is_answered() -> None:
    served = groups()
    task = asyncio.ensure_future(served.ask(DeleteGroupsRequest(groups_names=names(MANY))))
    await asyncio.sleep(0)
    (held,) = served.peer.held
    assert not held.done() and served.peer.kept_bytes == 1 << 20
    await task
    await asyncio.sleep(0)
    assert held.done() and not served.peer.kept_bytes


async def test_a_connection_is_released_when_its_long_request_fails() -> None:
    def fail(_: Served, request: Any) -> Any:
        raise ApiError(ErrorCode.NOT_COORDINATOR, None)

    served = groups(handler=fail)
    with pytest.raises(ApiError):
        await served.ask(DeleteGroupsRequest(groups_names=names(MANY)))
    assert all(held.done() for held in served.peer.held)


async def test_elements_with_equal_keys_are_judged_together() -> None:
    served = groups()
    await served.ask(DeleteGroupsRequest(groups_names=[*names(300), "g7", "g290", "g7"]))
    alone = [name for part in served.asked[:-1] for name in part.groups_names]
    assert "g7" not in alone and "g290" not in alone
    assert served.asked[-1].groups_names == ["g7", "g7", "g290", "g290"]


async def test_a_request_that_weighs_too_much_is_refused_before_anything_is_served() -> None:
    served = groups(InParts(paths=(("groups_names",),), weight_max=1_000))
    with pytest.raises(ApiError) as refused:
        await served.ask(DeleteGroupsRequest(groups_names=names(1_001)))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert not served.asked


async def test_a_list_for_a_handler_that_takes_it_whole_has_a_bound() -> None:
    def none(_: Served, request: Any) -> Any:
        return ListGroupsResponse()

    served = Served(ApiKey.LIST_GROUPS, AtOnce(weight_max=2_000), none, 5)
    await served.ask(ListGroupsRequest(states_filter=names(1_900)))
    with pytest.raises(ApiError):
        await served.ask(ListGroupsRequest(states_filter=names(2_100)))
    assert len(served.asked) == 1


async def test_a_request_that_is_served_whole_weighs_no_more_than_whole_max() -> None:
    def none(_: Served, request: Any) -> Any:
        return OffsetDeleteResponse()

    rule = InParts(paths=(("topics", "partitions"),), whole=lambda *_: True, whole_max=300)
    served = Served(ApiKey.OFFSET_DELETE, rule, none, 0)
    topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name) for name in names(310)]
    await served.ask(OffsetDeleteRequest(group_id="g", topics=topics[:290]))
    with pytest.raises(ApiError):
        await served.ask(OffsetDeleteRequest(group_id="g", topics=topics))
    assert len(served.asked) == 1


async def test_too_much_for_one_operation_is_refused_item_by_item() -> None:
    def refuse(request: CreateTopicsRequest, code: ErrorCode, _: int) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            topics=[
                CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=code)
                for topic in request.topics
            ]
        )

    def create(_: Served, request: CreateTopicsRequest) -> CreateTopicsResponse:
        return refuse(request, ErrorCode.NONE, 7)

    def load(topic: CreateTopicsRequest.CreatableTopic) -> int:
        return topic.num_partitions

    rule = InParts(paths=(("topics",),), load_of=load, load_max=10_000, refuse=refuse)
    served = Served(ApiKey.CREATE_TOPICS, rule, create, 7)
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=100) for name in names(101)
    ]
    response = await served.ask(CreateTopicsRequest(topics=topics, timeout_ms=1_000), 400)
    assert {topic.error_code for topic in response.topics} == {ErrorCode.POLICY_VIOLATION}
    assert not served.asked
    response = await served.ask(CreateTopicsRequest(topics=topics[:100], timeout_ms=1_000), 400)
    assert {topic.error_code for topic in response.topics} == {ErrorCode.NONE}
    assert [len(part.topics) for part in served.asked] == [1] * 100


async def test_an_error_of_the_whole_response_ends_a_request_in_parts() -> None:
    def refuse(_: Served, request: Any) -> Any:
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)

    rule = InParts(paths=(("topics", "partitions"),))
    served = Served(ApiKey.OFFSET_DELETE, rule, refuse, 0)
    topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name) for name in names(500)]
    response = await served.ask(OffsetDeleteRequest(group_id="g", topics=topics))
    assert response == OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    assert len(served.asked) == 1


async def test_parts_have_what_is_left_of_the_request_s_time() -> None:
    def create(served: Served, request: CreateTopicsRequest) -> CreateTopicsResponse:
        served.clock.toil(100)
        return CreateTopicsResponse()

    served = Served(ApiKey.CREATE_TOPICS, InParts(paths=(("topics",),)), create, 7)
    topics = [CreateTopicsRequest.CreatableTopic(name=name) for name in names(300)]
    await served.ask(CreateTopicsRequest(topics=topics, timeout_ms=250))
    assert [part.timeout_ms for part in served.asked] == [250, 150, 50]


async def test_a_request_without_a_timeout_ends_after_a_minute() -> None:
    def slow(served: Served, request: Any) -> Any:
        served.clock.toil(PATIENCE_MS / 2 + 1)
        return DeleteGroupsResponse()

    served = groups(handler=slow)
    with pytest.raises(ApiError) as error:
        await served.ask(DeleteGroupsRequest(groups_names=names(1_000)))
    assert error.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert len(served.asked) == 2


@pytest.mark.parametrize("promised", [False, True])
async def test_a_long_reply_to_a_short_request_is_encoded_in_steps(promised: bool) -> None:
    response = ListGroupsResponse(
        groups=[ListGroupsResponse.ListedGroup(group_id=name) for name in names(MANY)]
    )

    def handler(_: Served, request: Any) -> Any:
        if not promised:
            return response
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(response)
        return future

    served = Served(ApiKey.LIST_GROUPS, AtOnce(long_reply=True), handler, 5)
    reply = served.call(ListGroupsRequest(), 40)
    assert asyncio.iscoroutine(reply)
    body = await reply
    assert isinstance(body, EncodedReply)
    assert decode(ListGroupsResponse, b"".join(body.parts), 5)[0] == response


@pytest.mark.parametrize("in_parts", [False, True])
async def test_long_response_is_freed_in_steps(
    in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To free 100,000 elements at once, when their last reference goes, takes 15 ms."""
    weights: list[int] = []

    async def breathe(_: SharedSlices, steps: int = 1) -> None:
        weights.append(steps)

    def listed(_: Served, request: Any) -> Any:
        return ListGroupsResponse(
            groups=[ListGroupsResponse.ListedGroup(group_id=name) for name in names(MANY)]
        )

    monkeypatch.setattr(SharedSlices, "breathe", breathe)
    if in_parts:
        await groups().ask(DeleteGroupsRequest(groups_names=names(MANY)))
    else:
        served = Served(ApiKey.LIST_GROUPS, AtOnce(long_reply=True), listed, 5)
        await served.ask(ListGroupsRequest(), 40)
    assert weights[-MANY // FREED_AT_ONCE :] == [FREED_AT_ONCE] * (MANY // FREED_AT_ONCE)


async def test_response_that_its_handler_keeps_is_not_emptied() -> None:
    """A handler may answer with a response that it has cached."""
    kept = ListGroupsResponse(
        groups=[ListGroupsResponse.ListedGroup(group_id=name) for name in names(MANY)]
    )
    served = Served(ApiKey.LIST_GROUPS, AtOnce(long_reply=True), lambda *_: kept, 5)
    await served.ask(ListGroupsRequest(), 40)
    assert len(kept.groups) == MANY


async def test_reply_that_is_encoded_within_a_slice_is_not_encoded_in_steps() -> None:
    """Metadata of 100 topics takes 0.1 ms to encode, and twice as long in steps."""
    kept = ListGroupsResponse(
        groups=[ListGroupsResponse.ListedGroup(group_id=name) for name in names(1_000)]
    )
    served = Served(ApiKey.LIST_GROUPS, AtOnce(long_reply=True), lambda *_: kept, 5)
    assert served.call(ListGroupsRequest(), 40) is kept
    kept.groups *= 5
    assert await served.call(ListGroupsRequest(), 40) is not kept
