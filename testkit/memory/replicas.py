"""Brokers in memory that replicate: the leader's real Fetch handler, the follower's real fetcher.

Nothing moves by itself: `fetch` sends one request of one follower to one leader and applies the
response. Metadata reaches a broker when the test decides, so that any interleaving can be tested.
"""

from __future__ import annotations

from typing import Any

from broker.replication.fetching.fetcher import Decided, Effect, Fetcher, FetcherSettings
from broker.replication.partition.isr import IsrProposal, PartitionStateNow, asks_again
from broker.replication.partition.isr_changes import expire_isr, isr_answered, sends
from broker.replication.partition.partition import Partition
from broker.replication.requests.local_log_reports import LocalLogReports
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.topic_record import TopicRecord
from runtime.clock import ManualClock
from storage.log.manager import LogManager
from testkit.memory.broker import Harness, batch, produce_request, registration, topic_id

SETTINGS = FetcherSettings(wait_max_ms=0)
TOPIC = topic_id(1)
LAG_MS = 30_000.0


class Broker(Harness):
    """One broker; its fetchers by leader."""

    def __init__(self, node_id: int, clock: ManualClock, **props: Any) -> None:
        super().__init__(node_id=node_id, clock=clock, **props)
        self.node_id = node_id
        self.fetchers: dict[int, Fetcher] = {}
        self.proposals: list[tuple[Partition, IsrProposal]] = []
        self.reports = LocalLogReports(self.replicas.carry_out)
        self.seen = 0
        self.connect(fetchers=self, propose=self._propose, report=self.reports.want)

    def _propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Mark the proposal as in flight at once, unless another one is."""
        if sends(partition, proposal):
            self.proposals.append((partition, proposal))

    def follow(self, partition: Partition) -> None:
        leader = partition.leader_id
        fetcher = self.fetchers.get(leader)
        if fetcher is None:
            fetcher = self.fetchers[leader] = Fetcher(leader, self.node_id, SETTINGS)
        fetcher.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        for fetcher in self.fetchers.values():
            fetcher.unfollow(partition)

    def restate(self, partition: Partition) -> None:
        for fetcher in self.fetchers.values():
            fetcher.restate(partition)

    @property
    def log(self) -> Any:
        return self.partition().log

    @property
    def values(self) -> list[bytes]:
        """The values in the log: one per record."""
        from protocol.batch.records import read_records

        log = self.log
        data = log.read(log.log_start_offset, 1 << 20, max_offset=log.log_end_offset)
        return [record.value or b"" for record in read_records(data)]

    @property
    def high_watermark(self) -> int:
        return int(self.log.high_watermark)

    def append(self, *values: bytes, acks: int = 1) -> Any:
        """Append as a producer. Returns: the response, or a future while it waits."""
        return self.produce(batch(*values), acks=acks)


class Cluster:
    """Brokers 1, 2, ... and the metadata log, which each broker reads at its own pace."""

    def __init__(self, brokers: int = 3, **props: str) -> None:
        self.clock = ManualClock()
        self.clock.advance(1_000_000)
        self.records: list[Any] = []
        self.brokers = {n: Broker(n, self.clock, **props) for n in range(1, brokers + 1)}
        self.epochs = {n: 100 + n for n in self.brokers}
        for node_id in self.brokers:
            if node_id > 2:  # the harness registers the first two
                self.records += registration(node_id)
        self.catch_up()

    def __getitem__(self, node_id: int) -> Broker:
        return self.brokers[node_id]

    # --- metadata -----------------------------------------------------------------------------

    def catch_up(self, *node_ids: int) -> None:
        """Let these brokers (or all) read the metadata log to its end."""
        for node_id in node_ids or self.brokers:
            broker = self.brokers[node_id]
            for record in self.records[broker.seen :]:
                broker.replay(record)
            broker.seen = len(self.records)

    def create(self, *replicas: int, leader: int = 1, isr: list[int] | None = None) -> None:
        self.records += [
            TopicRecord(name="t", topic_id=TOPIC),
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC,
                replicas=list(replicas),
                isr=list(replicas) if isr is None else isr,
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
            ),
        ]
        self.catch_up()

    def change(self, *told: int, **changes: Any) -> None:
        """Change the partition; only the brokers in `told` read the record (all if none is
        named)."""
        self.records.append(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, **changes))
        self.catch_up(*told)

    # --- fetching -----------------------------------------------------------------------------

    def send(self, follower: int, leader: int) -> FetchResponse | None:
        """Pass the follower's request to the leader. Returns: the response, None if no request is
        due."""
        request = self.request(follower, leader)
        return None if request is None else self.serve(leader, request)

    def request(self, follower: int, leader: int) -> FetchRequest | None:
        fetcher = self.brokers[follower].fetchers[leader]
        now_ms = self.clock.monotonic_ms()
        due_ms = fetcher.due_ms(now_ms)
        if due_ms is None or due_ms > now_ms:
            return None
        return fetcher.next_request(self.epochs[follower], now_ms)

    def serve(self, leader: int, request: FetchRequest) -> FetchResponse:
        response: FetchResponse = self.brokers[leader].body(request)
        return response

    def take(self, follower: int, leader: int, response: FetchResponse) -> list[Effect]:
        """Pass the response to the follower and execute the effects of its partitions. Returns: the
        others."""
        broker = self.brokers[follower]
        others: list[Effect] = []
        for effect in broker.fetchers[leader].answered(response, self.clock.monotonic_ms()):
            if isinstance(effect, Decided):
                broker.replicas.carry_out(*effect)
            else:
                others.append(effect)
        return others

    def fetch(self, follower: int, leader: int = 1, times: int = 1) -> list[Effect]:
        """Run whole round trips. Returns: the fetcher's effects."""
        effects: list[Effect] = []
        for _ in range(times):
            response = self.send(follower, leader)
            if response is not None:
                effects += self.take(follower, leader, response)
        return effects

    def restart(self, node_id: int) -> Broker:
        """Restart the process with the same disk, under a new broker epoch."""
        before = self.brokers[node_id]
        fresh = Broker(node_id, self.clock)
        fresh.files = before.files
        fresh.logs = LogManager(
            before.files,
            before.logs.directory,
            clock=self.clock,
            rng=fresh.rng,
            config_for=lambda topic: fresh.settings.of(topic).log,
        )
        fresh.logs.load()
        fresh.replicas.logs = fresh.logs
        self.brokers[node_id] = fresh
        self.catch_up(node_id)
        return fresh


__all__ = ["Broker", "Cluster", "produce_request"]


def expire(c: Cluster, leader: int = 1) -> frozenset[int] | None:
    """Expire lagging ISR members. Returns: the members that would stay, None if none leaves."""
    partition = c[leader].partition()
    before = partition.proposal
    effects = expire_isr(partition, c.clock.monotonic_ms(), LAG_MS)
    c[leader].replicas.carry_out(partition, effects)
    now = partition.proposal
    return None if now is None or now is before else now.broker_ids


def answer(c: Cluster, error: ErrorCode = ErrorCode.NONE, **changes: object) -> bool:
    """Answer the leader's last proposal as the controller, without a change of the metadata.

    Returns: True if the leader will repeat the request.
    """
    partition, proposal = c[1].proposals[-1]
    state = PartitionStateNow(
        leader_id=1,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch + 1,
        isr=tuple(sorted(proposal.broker_ids)),
    )
    effects = isr_answered(partition, proposal, error, state._replace(**changes))  # type: ignore[arg-type]
    c[1].replicas.carry_out(partition, effects)
    return asks_again(error)


def answer_of(c: Cluster, records: bytes, index: int = 0) -> FetchResponse:
    """Return a leader's response whose record bytes are unchecked."""
    data = FetchResponse.PartitionData(
        partition_index=index, high_watermark=1, log_start_offset=0, records=records
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC, partitions=[data])
    return FetchResponse(responses=[topic], session_id=1)
