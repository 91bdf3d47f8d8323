"""A controller without a quorum: an image, soft state, and decisions replayed at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

from controller.brokers.registration import (
    HeartbeatReply,
    Silent,
    decide_fence_silent,
    decide_heartbeat,
    decide_register_broker,
    silent_brokers,
)
from controller.decision import ControllerView, Decide, Decision, Step
from controller.directory_moves import DirectoryMoves
from controller.heartbeats import Heartbeats
from controller.report_epochs import ReportEpochs
from controller.settings import ControllerSettings
from controller.topics.create import CreatedTopic, decide_create_topics
from metalog.image.features import ELR_VERSION
from metalog.image.replay import replay_all
from metalog.image.values import EMPTY_IMAGE, MetadataImage, PartitionImage, VersionRange
from protocol.errors import ApiError
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.metadata.feature_level_record import FeatureLevelRecord
from runtime.config import NodeConfig

R = TypeVar("R")

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
SESSION_TIMEOUT_MS = 9000
NODE_PROPERTIES = {
    "process.roles": "controller",
    "node.id": "100",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:0",
    "controller.quorum.voters": "100@localhost:9093",
}
OWN_INCARNATION = b"own incarnation."
FEATURES = {
    "metadata.version": VersionRange(7, 33),
    "kraft.version": VersionRange(0, 1),
    ELR_VERSION: VersionRange(0, 1),
}


@cache
def settings(**properties: str) -> ControllerSettings:
    """Return settings of a controller whose build could replicate, so that elections can be
    tested."""
    dotted = {name.replace("_", "."): value for name, value in properties.items()}
    return ControllerSettings.of(
        NodeConfig.parse({**NODE_PROPERTIES, **dotted}),
        cluster_id=CLUSTER_ID,
        incarnation_id=OWN_INCARNATION,
        features=FEATURES,
    )


def incarnation(broker_id: int, life: int = 1) -> bytes:
    return broker_id.to_bytes(8, "big", signed=True) + life.to_bytes(8, "big")


def directory(broker_id: int) -> bytes:
    return b"directory" + broker_id.to_bytes(7, "big", signed=True)


def registration(broker_id: int, *, life: int = 1, **fields: Any) -> BrokerRegistrationRequest:
    """Return a valid registration request; `fields` replace its parts."""
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=incarnation(broker_id, life),
        listeners=[
            BrokerRegistrationRequest.Listener(
                name="PLAINTEXT", host="localhost", port=9000 + broker_id
            )
        ],
        features=[
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in FEATURES.items()
        ],
        rack=None,
        log_dirs=[directory(broker_id)],
    )
    return request.replace(**fields)


class Cluster:
    """A controller that checks that deciding twice gives the same, replays, and updates its soft
    state."""

    def __init__(
        self, *, metadata_version: int = 30, elr: bool = False, seed: int = 1, **properties: str
    ) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.next_offset = 0
        self.now_ms = 1_700_000_000_000
        self.monotonic_ms = 1000.0
        self.settings = settings(**properties)
        self.heartbeats = Heartbeats()
        self.report_epochs = ReportEpochs()
        self.directory_moves = DirectoryMoves()
        self.rng = random.Random(seed)
        self.seed = seed
        self.apply([FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)])
        if elr:
            self.apply([FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])

    # --- running decisions ---

    def view(self) -> ControllerView:
        seed = self.seed

        def fresh_rng() -> random.Random:
            return random.Random(seed)

        return ControllerView(
            image=self.image,
            next_offset=self.next_offset,
            now_ms=self.now_ms,
            monotonic_ms=self.monotonic_ms,
            heartbeats=self.heartbeats,
            report_epochs=self.report_epochs,
            directory_moves=self.directory_moves,
            settings=self.settings,
            fresh_rng=fresh_rng,
        )

    def apply(self, records: Sequence[Any]) -> None:
        self.directory_moves.note(self.image, records)
        self.image = replay_all(self.image, records)
        self.next_offset += len(records)
        self.report_epochs.note(self.image, records)
        self.heartbeats.follow(self.image.cluster.brokers.values(), self.monotonic_ms)

    def run(self, decide: Decide[R]) -> R:
        """Run every step of an operation. Returns: its reply."""
        while True:
            decision = self.step(decide)
            if isinstance(decision, Decision):
                return decision.reply
            decide = decision.then

    def step(self, decide: Decide[R]) -> Decision[R] | Step[R]:
        """Decide twice over one view, compare, and apply the records."""
        self.seed = self.rng.getrandbits(64)
        view = self.view()
        before = view.image
        try:
            decision = decide(view)
        except ApiError as error:
            try:
                decide(view)
            except ApiError as again:
                assert (again.code, str(again)) == (error.code, str(error))
            else:
                raise AssertionError("the second decision did not fail") from error
            raise
        again_decision = decide(view)
        assert again_decision.records == decision.records
        if isinstance(decision, Decision):
            assert isinstance(again_decision, Decision)
            assert repr(again_decision.reply) == repr(decision.reply)
        assert view.image is before
        self.apply(decision.records)
        return decision

    def advance(self, by_ms: float) -> None:
        self.monotonic_ms += by_ms
        self.now_ms += int(by_ms)

    def set(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)

    # --- common operations ---

    def register(self, broker_id: int, *, life: int = 1, **fields: Any) -> int:
        request = registration(broker_id, life=life, **fields)
        return self.run(lambda view: decide_register_broker(view, request))

    def heartbeat(self, broker_id: int, **fields: Any) -> HeartbeatReply:
        epoch = self.image.cluster.brokers[broker_id].epoch
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=self.next_offset - 1
        ).replace(**fields)
        self.heartbeats.touch(
            broker_id,
            epoch=request.broker_epoch,
            metadata_offset=request.current_metadata_offset,
            monotonic_ms=self.monotonic_ms,
        )
        return self.run(lambda view: decide_heartbeat(view, request))

    def start(self, *broker_ids: int, racks: Sequence[str | None] = ()) -> None:
        """Register brokers and unfence them."""
        for position, broker_id in enumerate(broker_ids):
            rack = racks[position] if racks else None
            self.register(broker_id, rack=rack)
            self.heartbeat(broker_id)

    def fence_expired(self, partitions_max: int = 10_000) -> list[int]:
        silent: Silent | None = silent_brokers(self.view())
        assert silent is not None
        fenced = [broker_id for broker_id, _ in silent.causes]
        while silent is not None:
            decide = partial(decide_fence_silent, silent=silent, partitions_max=partitions_max)
            silent = self.run(decide)
        return fenced

    def fence(self, broker_id: int) -> None:
        """Let one broker's session expire while the others stay in contact."""
        for other in self.image.cluster.brokers.values():
            if other.id != broker_id:
                self.touch(other.id)
        self.advance(SESSION_TIMEOUT_MS)
        for other in self.image.cluster.brokers.values():
            if other.id != broker_id:
                self.touch(other.id)
        assert self.fence_expired() == [broker_id]

    def touch(self, broker_id: int) -> None:
        broker = self.image.cluster.brokers[broker_id]
        self.heartbeats.touch(
            broker_id,
            epoch=broker.epoch,
            metadata_offset=self.next_offset - 1,
            monotonic_ms=self.monotonic_ms,
        )

    def create_topic(self, name: str, *assignments: Sequence[int], **configs: str) -> CreatedTopic:
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreateTopicsRequest.CreatableReplicaAssignment(
                            partition_index=index, broker_ids=list(replicas)
                        )
                        for index, replicas in enumerate(assignments)
                    ],
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(
                            name=key.replace("_", "."), value=value
                        )
                        for key, value in configs.items()
                    ],
                )
            ]
        )
        (outcome,) = self.run(lambda view: decide_create_topics(view, request))
        if isinstance(outcome.result, ApiError):
            raise outcome.result
        return outcome.result

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        return self.image.topics.by_name[name].partitions[index]

    def state(self, name: str, index: int = 0) -> tuple[int, tuple[int, ...], int, int]:
        """Return leader, ISR, leader epoch, partition epoch."""
        p = self.partition(name, index)
        return p.leader, p.isr, p.leader_epoch, p.partition_epoch
