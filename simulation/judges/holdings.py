"""Holdings of a broker at the end of a run (P26): only what the state of the cluster explains.

Memory in bytes is not meaningful for a process of a minute, so objects are counted: replicas and
logs, sessions of followers, waiting requests, followers and producers of partitions, groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.replication.sessions.follower_watch import FollowerWatch
from broker.replication.sessions.session_watch import LoneWatch

if TYPE_CHECKING:
    from broker.assembly import BrokerServer
    from broker.context import BrokerContext
    from broker.replication.partition.partition import Partition
    from simulation.judges.partitions import Promises
    from simulation.shapes.shape import Shape


def unexplained(
    server: BrokerServer, broker: BrokerContext, promises: Promises, shape: Shape
) -> Iterator[str]:
    """Yield each holding that the cluster does not explain, as a text that begins with
    "remembers"."""
    yield from _replicas(server, broker.node_id, promises)
    yield from _sessions(broker)
    for one in broker.replicas:
        yield from _of_partition(one, broker, promises)
    waits = len(broker.waits.purgatory)
    connections = sum(1 for one in server.servers for _ in one.connections)
    if waits > connections:
        yield f"remembers {waits} requests that wait, over {connections} connections"
    yield from _groups(server, shape)


def _groups(server: BrokerServer, shape: Shape) -> Iterator[str]:
    known = {one.args["group"] for one in shape.clients if "group" in one.args}
    quitters = {one.name for one in shape.clients if one.kind == "quitter"}
    for _, shard in () if server.coordinator is None else server.coordinator.runtime.partitions():
        core = None if shard is None else shard.core
        left = {
            name
            for name, group in ({} if core is None else core.groups).items()
            # A quitter whose LeaveGroup was lost had joined: its group is stored, and stays as long
            # as offsets are retained, without members.
            if not (
                name.rpartition(" ")[0] in quitters
                and not group.members
                and not group.pending
                and core is not None
                and name in core.appended.groups
            )
        }
        if left - known:
            yield f"remembers the groups {sorted(left - known)}, clients are of {sorted(known)}"


def _replicas(server: BrokerServer, node_id: int, promises: Promises) -> Iterator[str]:
    own = {
        (topic.id, index)
        for topic in promises.metadata.image.topics.by_id.values()
        for index, one in topic.partitions.items()
        if node_id in one.replicas
    }
    replicas = {(one.topic_id, one.index): one for one in server.replicas}
    for key, one in replicas.items():
        if key not in own:
            yield f"remembers a replica of {one.topic}-{one.index}, which is not its own"
    for log in server.logs.logs.values():
        if log.topic_id is not None and (log.topic_id, log.partition) not in own:
            yield f"remembers the log of {log.topic}-{log.partition}, which is not its own"


def _sessions(broker: BrokerContext) -> Iterator[str]:
    """Yield followers that have sessions of several broker epochs.

    A fetcher with nothing left to fetch here leaves its session behind, as in Kafka; it is evicted
    when another session needs its place. An unregistered broker sends no broker epoch (seed 9700).
    """
    followers: dict[int, set[int]] = {}
    for session in broker.sessions:
        watch = session.watch
        if isinstance(watch, FollowerWatch) and watch.broker_epoch >= 0:
            followers.setdefault(watch.replica_id, set()).add(watch.broker_epoch)
    for replica_id, lives in followers.items():
        if len(lives) > 1:
            yield f"remembers sessions of broker {replica_id} with the epochs {sorted(lives)}"


def _of_partition(one: Partition, broker: BrokerContext, promises: Promises) -> Iterator[str]:
    where = f"{one.topic}-{one.index}"
    strangers = set(one.remote) - set(one.replicas)
    if strangers:
        yield f"remembers of {where} the followers {sorted(strangers)}, which are none"
    sessions = {id(session.watch) for session in broker.sessions}
    for watch in one.subscriptions.watches():
        if id(watch) not in sessions and not (
            isinstance(watch, LoneWatch) and watch.wait is not None
        ):
            yield f"remembers of {where} a session that is over"
    truth = promises.partitions.get((one.topic_id, one.index))
    if truth is None or one.topic in promises.given_up or one.topic in promises.compacted:
        return
    committed = {producer_id for producer_id, _ in truth.sequences._next}
    unknown = {state.producer_id for state in one.log.producers} - committed
    if unknown:
        yield f"remembers of {where} the producers {sorted(unknown)}, which have written nothing"
