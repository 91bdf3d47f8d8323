"""Shell: Requests of a quorum replica to its peers, and their answers as events for the core.

Each request runs in a task of its own. A peer that does not answer is an event as well
(RequestFailed). At most one fetch, of records or of a snapshot, is in flight: the core abandons the
one before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

from metalog.quorum import wire
from metalog.quorum.config import QuorumConfig
from metalog.quorum.core.messages import (
    Event,
    FindLeader,
    InstallSnapshot,
    RequestFailed,
    RequestKind,
    SendBeginEpoch,
    SendEndEpoch,
    SendFetch,
    SendVote,
    SendVoterUpdate,
    SnapshotPieceFetched,
    VoterUpdateAnswered,
)
from metalog.quorum.core.quorum import QuorumCore
from metalog.quorum.core.voters import NOBODY, VoterEndpoint
from metalog.quorum.fetch_size import FetchSize
from metalog.quorum.log import MetadataLog
from metalog.quorum.peers import Peers
from metalog.quorum.snapshot_transfer import NotStored, SnapshotFetcher
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.schema import Buffer
from runtime.log import get_logger
from storage.log.errors import LogFailed

_log = get_logger("metalog.quorum")


class Spawn(Protocol):
    """Starts a task that ends with the replica; a failure of a fatal one stops the node."""

    def __call__(
        self, name: str, coro: Coroutine[Any, Any, None], *, fatal: bool = True
    ) -> asyncio.Task[Any]: ...


class PeerRequests:
    """The requests of one quorum replica."""

    def __init__(
        self,
        config: QuorumConfig,
        core: QuorumCore,
        log: MetadataLog,
        peers: Peers,
        snapshots: SnapshotFetcher,
        *,
        step: Callable[[Event], None],
        spawn: Spawn,
        snapshot_fetched: Callable[[InstallSnapshot], None],
    ) -> None:
        """Set the replica's parts. `step` passes an answer to the core; `snapshot_fetched` gets a
        snapshot that is whole, if the core still waits for it."""
        self._config = config
        self._core = core
        self._log = log
        self._peers = peers
        self._snapshots = snapshots
        self._step = step
        self._spawn = spawn
        self._snapshot_fetched = snapshot_fetched
        self._fetched: Buffer = b""
        self._fetch_size = FetchSize(config.fetch_max_bytes)
        self._fetching: asyncio.Task[Any] | None = None
        self.end_epoch_tasks: set[asyncio.Task[Any]] = set()
        """EndQuorumEpoch requests in flight: a node that stops waits for them."""

    def take_fetched(self) -> Buffer:
        """Return the records of the fetch that the core has accepted."""
        data, self._fetched = self._fetched, b""
        return data

    # --- effects of the core ------------------------------------------------------------------

    def table(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """Return the function for each kind of effect."""
        return {
            SendVote: self._send_vote,
            SendBeginEpoch: self._send_begin_epoch,
            SendEndEpoch: self._send_end_epoch,
            SendVoterUpdate: self._send_voter_update,
            SendFetch: self._send_fetch,
            FindLeader: self._send_find_leader,
            InstallSnapshot: self._send_fetch_snapshot,
        }

    def _send_vote(self, effect: SendVote) -> None:
        poll = effect.epoch, effect.pre_vote
        self._request(RequestKind.VOTE, effect.to, lambda: self._vote(effect), poll=poll)

    def _send_begin_epoch(self, effect: SendBeginEpoch) -> None:
        self._request(RequestKind.BEGIN_EPOCH, effect.to, lambda: self._begin_epoch(effect))

    def _send_end_epoch(self, effect: SendEndEpoch) -> None:
        task = self._request(RequestKind.END_EPOCH, effect.to, lambda: self._end_epoch(effect))
        self.end_epoch_tasks.add(task)
        task.add_done_callback(self.end_epoch_tasks.discard)

    def _send_voter_update(self, effect: SendVoterUpdate) -> None:
        self._request(RequestKind.UPDATE_VOTER, effect.to, lambda: self._update_voter(effect))

    def _send_fetch(self, effect: SendFetch) -> None:
        self._stop_fetching()
        self._fetching = self._request(
            RequestKind.FETCH, effect.to, lambda: self._fetch_from_leader(effect), effect.fetch_id
        )

    def _send_find_leader(self, effect: FindLeader) -> None:
        self._stop_fetching()
        self._fetching = self._request(
            RequestKind.FETCH, NOBODY, lambda: self._find_leader(effect), effect.fetch_id
        )

    def _send_fetch_snapshot(self, effect: InstallSnapshot) -> None:
        self._stop_fetching()
        self._fetching = self._spawn("fetch a metadata snapshot", self._fetch_snapshot(effect))

    # --- requests -----------------------------------------------------------------------------

    def _stop_fetching(self) -> None:
        """Cancel the fetch or snapshot in flight, which the core has abandoned."""
        if self._fetching is not None and self._fetching is not asyncio.current_task():
            self._fetching.cancel()
        self._fetching = None

    def _request(
        self,
        kind: RequestKind,
        node_id: int,
        work: Callable[[], Awaitable[None]],
        fetch_id: int | None = None,
        poll: tuple[int, bool] | None = None,
    ) -> asyncio.Task[Any]:
        failed = RequestFailed(node_id, kind, fetch_id, poll=poll)
        return self._spawn(f"{kind.value} to {node_id}", self._or_failed(failed, work))

    async def _or_failed(self, failed: RequestFailed, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except LogFailed:
            raise  # this node's disk failed
        except (OSError, ApiError, ProtocolError) as error:
            _log.debug(
                "a quorum peer did not answer",
                peer=failed.node_id,
                kind=failed.kind.value,
                why=str(error),
            )
            self._step(failed._replace(refused=isinstance(error, ConnectionRefusedError)))

    def _address(self, node_id: int) -> VoterEndpoint:
        endpoint = self._core.endpoint_of(node_id)
        if endpoint is None:
            raise ConnectionError(f"unknown endpoint of node {node_id}")
        return endpoint

    async def _vote(self, effect: SendVote) -> None:
        config, voter = self._config, self._core.voters.get(effect.to)
        if voter is None:
            return
        request = wire.vote_request(effect, config.cluster_id, config.node, voter.key)
        response = await self._peers.request(self._address(effect.to), request)
        answered = wire.vote_answered(effect.to, response, pre_vote=effect.pre_vote)
        if answered is not None:
            self._step(answered)

    async def _begin_epoch(self, effect: SendBeginEpoch) -> None:
        config, voter = self._config, self._core.voters.get(effect.to)
        if voter is None:
            return
        request = wire.begin_epoch_request(
            effect.epoch, config.cluster_id, config.node.id, voter.key, self._core.endpoints
        )
        response = await self._peers.request(self._address(effect.to), request)
        answered = wire.epoch_answered(effect.to, response)
        if answered is not None:
            self._step(answered)

    async def _end_epoch(self, effect: SendEndEpoch) -> None:
        config = self._config
        request = wire.end_epoch_request(
            effect, config.cluster_id, config.node.id, self._core.endpoints
        )
        response = await self._peers.request(self._address(effect.to), request)
        answered = wire.epoch_answered(effect.to, response)
        if answered is not None:
            self._step(answered)

    async def _update_voter(self, effect: SendVoterUpdate) -> None:
        request = wire.update_voter_request(effect.voter, self._config.cluster_id, effect.epoch)
        response = await self._peers.request(self._address(effect.to), request)
        error = ErrorCode(response.error_code)
        endpoints = str(effect.voter.endpoints)
        _log.info(
            "sent this voter's endpoints to the leader", endpoints=endpoints, error=error.name
        )
        self._step(VoterUpdateAnswered(error))

    async def _fetch_from_leader(self, effect: SendFetch) -> None:
        wait_ms = self._config.fetch_wait_ms_max if effect.patient else 0
        await self._fetch(effect, effect.to, self._address(effect.to), wait_ms=wait_ms)

    async def _find_leader(self, effect: FindLeader) -> None:
        await self._fetch(effect, NOBODY, effect.endpoint, timeout_ms=effect.timeout_ms)

    async def _fetch(
        self,
        effect: SendFetch | FindLeader,
        node_id: int,
        to: VoterEndpoint,
        *,
        wait_ms: int = 0,
        timeout_ms: float | None = None,
    ) -> None:
        config, high_watermark = self._config, self._core.high_watermark
        request = wire.fetch_request(
            effect,
            config.cluster_id,
            config.node,
            max_bytes=self._fetch_size.wanted_bytes,
            max_wait_ms=wait_ms,
            high_watermark=-1 if high_watermark is None else high_watermark,
        )
        response = await self._peers.request(to, request, wait_ms=wait_ms, timeout_ms=timeout_ms)
        answered = wire.fetch_answered(effect.fetch_id, node_id, response)
        if answered is None:
            raise ApiError(
                ErrorCode(response.error_code), "Fetch response without the requested partition"
            )
        event, records = answered
        if self._core.awaits(effect.fetch_id):
            data = b"".join(records) if isinstance(records, list) else records
            self._fetched = self._fetch_size.cut(data)
            self._log.check_fetched(self._fetched)
        self._step(event)

    async def _fetch_snapshot(self, effect: InstallSnapshot) -> None:
        piece = SnapshotPieceFetched(effect.fetch_id)
        try:
            to = self._address(effect.node_id)
            await self._snapshots.fetch(effect, to, lambda: self._step(piece))
        except (OSError, ApiError, ProtocolError) as error:
            _log.warning("fetching a metadata snapshot failed", why=str(error))
            failed = RequestFailed(effect.node_id, RequestKind.FETCH_SNAPSHOT, effect.fetch_id)
            self._step(failed._replace(not_stored=isinstance(error, NotStored)))
            return
        if self._core.awaits(effect.fetch_id):
            self._snapshot_fetched(effect)
