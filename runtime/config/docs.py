"""Documentation of the keys; imported only for display."""

from __future__ import annotations

NO_EFFECT = "Known from Kafka and validated; has no effect here."

DOCS: dict[str, str] = {
    "advertised.listeners": "Addresses that the broker registers for clients and other brokers.",
    "auto.create.topics.enable": "Whether a metadata request for an unknown topic creates the "
    "topic.",
    "auto.leader.rebalance.enable": "Whether the controller regularly elects preferred leaders.",
    "broker.heartbeat.interval.ms": "Interval between a broker's heartbeats to the controller.",
    "broker.id": "Former name of node.id; the two must be equal.",
    "broker.rack": "Rack of this broker, used to spread replicas.",
    "broker.session.timeout.ms": "Time without a heartbeat after which the controller fences a "
    "broker.",
    "cleanup.policy": "Whether old records are deleted by age and size, compacted by key, or both.",
    "compression.gzip.level": "Level of gzip, from 1 to 9; -1 for its default.",
    "compression.lz4.level": "Level of lz4.",
    "compression.type": "Codec of stored batches; `producer` keeps the producer's.",
    "compression.zstd.level": "Level of zstd.",
    "connections.max.idle.ms": "Time without a request after which a connection is closed.",
    "controlled.shutdown.enable": "Whether a stopping broker first requests the controller to "
    "move its leaderships.",
    "controller.listener.names": "Listeners that belong to the controller role.",
    "controller.quorum.bootstrap.servers": "Addresses for the discovery of the quorum.",
    "controller.quorum.election.backoff.max.ms": "Longest random backoff before the retry of a "
    "failed election.",
    "controller.quorum.election.timeout.ms": "Time that a candidate waits for votes.",
    "controller.quorum.fetch.max.bytes": "Maximum bytes of metadata log in one fetch response.",
    "controller.quorum.fetch.snapshot.max.bytes": "Maximum bytes of a metadata snapshot in one "
    "response.",
    "controller.quorum.fetch.timeout.ms": "Time without a successful fetch from the leader after "
    "which a voter starts an election.",
    "controller.quorum.request.timeout.ms": "Timeout of requests within the quorum.",
    "controller.quorum.retry.backoff.ms": "Backoff before the retry of a request within the "
    "quorum.",
    "controller.quorum.voters": "The fixed voters of the metadata quorum, as id@host:port.",
    "controller.quota.window.num": "Samples that determine how much of controller_mutation_rate "
    "can accumulate.",
    "controller.quota.window.size.seconds": "Length of one such sample.",
    "default.replication.factor": "Default replication factor of new topics.",
    "delete.retention.ms": "Time that a tombstone stays after its record was compacted away.",
    "delete.topic.enable": "Whether topics may be deleted.",
    "fetch.max.bytes": "Maximum bytes of one fetch response.",
    "file.delete.delay.ms": "Time between the removal of a file from the log and from the disk.",
    "flush.messages": "Records after which a log is flushed.",
    "flush.ms": "Time after which a log is flushed.",
    "follower.fetch.last.tiered.offset.enable": "Whether an empty replica of a tiered topic "
    "copies only what is not in tiered storage yet, so that it is in sync sooner (KIP-1023). It "
    "serves older records from there.",
    "follower.replication.throttled.rate": "Bytes per second that throttled replicas of this "
    "broker may fetch.",
    "follower.replication.throttled.replicas": "Replicas limited to the follower rate of their "
    "brokers, as partition:broker, or * for all.",
    "group.initial.rebalance.delay.ms": "Time that an empty group waits for more members.",
    "group.max.session.timeout.ms": "Maximum session timeout that a member may request.",
    "group.max.size": "Maximum number of members of one classic group.",
    "group.min.session.timeout.ms": "Minimum session timeout that a member may request.",
    "index.interval.bytes": "Bytes of log between two entries of the offset index.",
    "initial.broker.registration.timeout.ms": "Time within which a starting broker must be "
    "registered; otherwise it stops.",
    "inter.broker.listener.name": "Listener for requests between brokers.",
    "internal.metadata.log.segment.bytes": "Size at which a segment of the metadata log is "
    "closed, without the usual minimum.",
    "internal.segment.bytes": "Size at which a segment is closed, without the usual minimum.",
    "kraftbox.broker.connection.loss.fence.ms": "On a controller: time after which a broker is "
    "fenced if its peer closed the heartbeat connection and no heartbeat came over another. After "
    "a change of controllers, a broker without a heartbeat to the new one within "
    "controller.quorum.fetch.timeout.ms plus this time is fenced. 0 disables both and leaves "
    "fencing to broker.session.timeout.ms, which suits Apache Kafka's brokers: they send no "
    "heartbeat after a connection broke.",
    "kraftbox.connection.max.inflight": "Unanswered requests of one connection above which its "
    "socket is not read.",
    "kraftbox.fault.acks": "`leader` plants a bug for tests of clusters: acks=all is answered as "
    "soon as the leader has the records.",
    "kraftbox.fault.files": "`lossy` drops all unflushed data when the process dies, like a power "
    "cut; `slow` delays flushes and cold reads.",
    "kraftbox.fault.files.flush.ms": "Duration of a flush with kraftbox.fault.files=slow.",
    "kraftbox.fault.files.on.signal": "With kraftbox.fault.files=slow the disk is fast at first; "
    "SIGUSR2 switches between slow and fast.",
    "kraftbox.fault.files.read.ms": "Duration of a cold read with kraftbox.fault.files=slow.",
    "kraftbox.fault.stall.ms": "Time for which SIGUSR1 blocks the node's event loop; 0 does not "
    "handle the signal.",
    "kraftbox.files.open.max": "Maximum number of open files; 0 for a share of the process's "
    "limit.",
    "kraftbox.http.listener": "Address of /healthz, /readyz and /metrics; empty disables them. If "
    "the default port is taken, the kernel selects another.",
    "kraftbox.last.known.leader.election.enable": "Whether the last known leader is elected if "
    "ISR and ELR are empty, as in Kafka; it may lack records (KIP-966).",
    "kraftbox.leader.discovery.enable": "Whether a refused produce or fetch names the new leader "
    "(KIP-951). A change for all brokers or for one takes effect at once.",
    "kraftbox.local.log.report.interval.ms": "Shortest interval between a leader's reports of its "
    "replicas' local logs to the controller, if it has nothing else to report (KIP-1303).",
    "kraftbox.log.format": "Format of log lines.",
    "kraftbox.log.level": "Lowest level that is logged.",
    "kraftbox.log.requests": "Whether a broker logs every request that it answers.",
    "kraftbox.loop.lag.interval.ms": "Interval between measurements of the event loop's lag. "
    "Shorter stalls are found by chance only.",
    "kraftbox.metrics.partitions": "Partitions that have series of their own.",
    "kraftbox.produce.decompressed.max.bytes": "Maximum size of one decompressed batch.",
    "kraftbox.produce.validate.records": "Whether every record of a produced batch is validated, "
    "as in Kafka, and not only the batch header.",
    "kraftbox.replica.selector.local.log.enable": "Whether consumers are not sent to followers "
    "whose local log is too small for a preferred candidate (KIP-1303).",
    "leader.election.eligible.local.log.bytes": "Local log size from which a replica is a "
    "preferred candidate in an election (KIP-1303, in no release of Kafka); above 0. If both "
    "thresholds are set, one is enough.",
    "leader.election.eligible.local.log.ms": "Age of the first local record from which a replica "
    "is a preferred candidate in an election (KIP-1303, in no release of Kafka); above 0.",
    "leader.replication.throttled.rate": "Bytes per second that throttled replicas may fetch from "
    "this broker.",
    "leader.replication.throttled.replicas": "Replicas limited to the leader rate of their "
    "brokers, as partition:broker, or * for all.",
    "listener.security.protocol.map": "The security protocol of each listener name.",
    "leader.imbalance.check.interval.seconds": "Interval between elections of preferred leaders.",
    "listeners": "Addresses to listen on, as NAME://host:port.",
    "local.retention.bytes": "Local size of a partition in tiered storage; -2 for retention.bytes.",
    "local.retention.ms": "Local age of segments in tiered storage; -2 for retention.ms.",
    "log.cleaner.backoff.ms": "Backoff of the cleaner when there is nothing to clean.",
    "log.cleaner.dedupe.buffer.size": "Memory for the keys of one cleaning pass.",
    "log.cleaner.delete.retention.ms": "Time that a tombstone stays after its record was "
    "compacted away.",
    "log.cleaner.enable": "Whether compacted topics are compacted.",
    "log.cleaner.io.buffer.load.factor": "Fill level of the memory for keys at which a pass ends.",
    "log.cleaner.io.max.bytes.per.second": "Bytes per second that the cleaner may read and write.",
    "log.cleaner.max.compaction.lag.ms": "Age at which a record must become eligible for "
    "compaction.",
    "log.cleaner.min.cleanable.ratio": "Share of a log that is not compacted at which compaction "
    "starts.",
    "log.cleaner.min.compaction.lag.ms": "Age before which a record is not compacted away.",
    "log.cleaner.threads": "Kafka's number of cleaner threads; here one worker cleans.",
    "log.cleanup.policy": "Whether old records are deleted by age and size, compacted by key, or "
    "both.",
    "log.dir": "Data directory if log.dirs is not set.",
    "log.dirs": "The data directory.",
    "log.flush.interval.messages": "Records after which a log is flushed.",
    "log.flush.interval.ms": "Time after which a log is flushed.",
    "log.flush.offset.checkpoint.interval.ms": "Interval between checkpoints of the recovery "
    "points.",
    "log.flush.scheduler.interval.ms": "Interval between checks for logs that are due for a "
    "flush, at least one second; default: every second. Also the age after which a log is "
    "flushed, if log.flush.interval.ms is not set.",
    "log.flush.start.offset.checkpoint.interval.ms": "Interval between checkpoints of the log "
    "start offsets.",
    "log.index.interval.bytes": "Bytes of log between two entries of the offset index.",
    "log.index.size.max.bytes": "Size of an index at which the segment is closed.",
    "log.local.retention.bytes": "Local size of a partition in tiered storage; -2 for "
    "log.retention.bytes.",
    "log.local.retention.ms": "Local age of segments in tiered storage; -2 for log.retention.ms.",
    "log.message.timestamp.after.max.ms": "Maximum time by which a timestamp may be ahead of the "
    "broker's clock.",
    "log.message.timestamp.before.max.ms": "Maximum time by which a timestamp may be behind the "
    "broker's clock.",
    "log.message.timestamp.type": "Whether records keep the producer's timestamp or get the "
    "broker's.",
    "log.remote.copy.lag.bytes": "Bytes that must follow a closed segment before it is copied to "
    "tiered storage; 0 copies at once, -1 is log.local.retention.bytes. One of the two copy lags "
    "is enough.",
    "log.remote.copy.lag.ms": "Age that a closed segment must have before it is copied to tiered "
    "storage; 0 copies at once, -1 is log.local.retention.ms. One of the two copy lags is enough.",
    "log.retention.bytes": "Size of a partition above which its oldest segments are deleted.",
    "log.retention.check.interval.ms": "Interval between checks for segments to delete.",
    "log.retention.hours": "Age at which segments are deleted; log.retention.ms has precedence.",
    "log.retention.minutes": "Age at which segments are deleted; log.retention.ms has precedence.",
    "log.retention.ms": "Age at which segments are deleted; -1 for never.",
    "log.roll.hours": "Age at which a segment is closed; log.roll.ms has precedence.",
    "log.roll.jitter.hours": "Maximum random reduction of log.roll.hours; log.roll.jitter.ms has "
    "precedence.",
    "log.roll.jitter.ms": "Maximum random reduction of log.roll.ms, so that segments do not close "
    "at once.",
    "log.roll.ms": "Age at which a segment is closed.",
    "log.segment.bytes": "Size at which a segment is closed.",
    "log.segment.delete.delay.ms": "Time between the removal of a file from the log and from the "
    "disk.",
    "max.compaction.lag.ms": "Age at which a record must become eligible for compaction.",
    "max.connection.creation.rate": "Maximum new connections per second; further ones wait.",
    "max.connections": "Maximum connections of this broker.",
    "max.connections.per.ip": "Maximum connections from one address.",
    "max.connections.per.ip.overrides": "Other limits for single addresses, as host:count.",
    "max.decompressed.message.bytes": "Largest record of a compressed batch. Below the default, "
    "the broker examines the records of each compressed batch.",
    "max.incremental.fetch.session.cache.slots": "Maximum number of cached fetch sessions.",
    "max.message.bytes": "Largest record batch that is accepted.",
    "max.request.partition.size.limit": "Maximum partitions in one response to "
    "DescribeTopicPartitions.",
    "message.max.bytes": "Largest record batch that is accepted.",
    "message.timestamp.after.max.ms": "Maximum time by which a timestamp may be ahead of the "
    "broker's clock.",
    "message.timestamp.before.max.ms": "Maximum time by which a timestamp may be behind the "
    "broker's clock.",
    "message.timestamp.type": "Whether records keep the producer's timestamp or get the broker's.",
    "metadata.log.dir": "Directory of the metadata log, if it is not in the data directory.",
    "metadata.log.max.record.bytes.between.snapshots": "Bytes of metadata log after which a "
    "snapshot is written.",
    "metadata.log.max.snapshot.interval.ms": "Time after which a snapshot is written if the "
    "metadata has changed.",
    "metadata.log.segment.bytes": "Size at which a segment of the metadata log is closed.",
    "metadata.log.segment.ms": "Age at which a segment of the metadata log is closed.",
    "metadata.max.idle.interval.ms": "Interval between no-op records of the active controller; 0 "
    "for none.",
    "metadata.max.retention.bytes": "Size of metadata log and snapshots above which the oldest "
    "that a snapshot covers are deleted.",
    "metadata.max.retention.ms": "Age at which metadata log and snapshots that a newer snapshot "
    "covers are deleted.",
    "min.cleanable.dirty.ratio": "Share of a log that has not been compacted, above which it is.",
    "min.compaction.lag.ms": "Age before which a record is not compacted away.",
    "min.insync.replicas": "In-sync replicas that a write with acks=all requires.",
    "node.id": "Number of this node, unique in the cluster.",
    "num.replica.fetchers": "Connections over which a follower fetches from each leader.",
    "num.partitions": "Default number of partitions of new topics.",
    "offset.metadata.max.bytes": "Maximum length of the metadata of a committed offset.",
    "offsets.commit.timeout.ms": "Time that an offset commit waits for replication.",
    "offsets.retention.check.interval.ms": "Interval between checks for expired offsets.",
    "offsets.retention.minutes": "Time after which offsets of an empty group expire.",
    "offsets.topic.compression.codec": "Number of the codec for batches of the offsets topic.",
    "offsets.topic.num.partitions": "Partitions of the offsets topic.",
    "offsets.topic.replication.factor": "Replicas of the offsets topic.",
    "offsets.topic.segment.bytes": "Size at which a segment of the offsets topic is closed.",
    "process.roles": "Roles of this node: broker, controller, or both.",
    "producer.id.expiration.check.interval.ms": "Interval between checks for idle producers.",
    "producer.id.expiration.ms": "Time after which an idle producer's state expires.",
    "queued.max.request.bytes": "Memory for incomplete and unanswered requests; sockets are not "
    "read above it. -1: unlimited.",
    "quota.window.num": "Samples of a rate.",
    "quota.window.size.seconds": "Length of one sample of a rate.",
    "remote.copy.lag.bytes": "Bytes that must follow a closed segment before it is copied to "
    "tiered storage; 0 copies at once, -1 is local.retention.bytes. One of the two copy lags is "
    "enough.",
    "remote.copy.lag.ms": "Age that a closed segment must have before it is copied to tiered "
    "storage; 0 copies at once, -1 is local.retention.ms. One of the two copy lags is enough.",
    "remote.fetch.max.wait.ms": "Time that a fetch waits for tiered storage before it returns no "
    "data of that partition; the read continues for the next fetch.",
    "remote.list.offsets.request.timeout.ms": "Time that ListOffsets may search for a timestamp "
    "in tiered storage.",
    "remote.log.copy.disable": "Whether copies to tiered storage are paused.",
    "remote.log.delete.on.disable": "Whether a topic's objects are deleted when its tiered "
    "storage is disabled.",
    "remote.log.index.file.cache.total.size.bytes": "Size of the local copies of remote indexes.",
    "remote.log.index.file.cache.ttl.ms": "Time after which an unused local copy of a remote "
    "index is removed; -1 for never.",
    "remote.log.manager.copier.thread.pool.size": "Segments that are copied at the same time.",
    "remote.log.manager.copy.max.bytes.per.second": "Bytes per second that may be copied to "
    "tiered storage.",
    "remote.log.manager.copy.quota.window.num": "Samples of this rate.",
    "remote.log.manager.copy.quota.window.size.seconds": "Length of one such sample.",
    "remote.log.manager.expiration.thread.pool.size": "Partitions whose remote segments expire at "
    "the same time.",
    "remote.log.manager.fetch.max.bytes.per.second": "Bytes per second that may be read from "
    "tiered storage.",
    "remote.log.manager.fetch.quota.window.num": "Samples of this rate.",
    "remote.log.manager.fetch.quota.window.size.seconds": "Length of one such sample.",
    "remote.log.manager.follower.thread.pool.size": "Followers that build the state before their "
    "first local offset from tiered storage at the same time.",
    "remote.log.manager.task.interval.ms": "Interval between checks for segments to copy or to "
    "delete.",
    "remote.log.manager.task.retry.backoff.max.ms": "Maximum backoff after a failed task.",
    "remote.log.manager.task.retry.backoff.ms": "First backoff after a failed task.",
    "remote.log.manager.task.retry.jitter": "Fraction by which backoffs are randomly longer or "
    "shorter.",
    "remote.log.metadata.manager.class.name": "Only Kafka's topic-based manager is supported.",
    "remote.log.metadata.manager.impl.prefix": "Prefix of the keys for clients of the metadata "
    "topic.",
    "remote.log.metadata.manager.listener.name": "Listener for requests to leaders of the "
    "metadata topic; default: the listener between brokers.",
    "remote.log.reader.max.pending.tasks": "Reads of tiered storage that may be queued.",
    "remote.log.reader.threads": "Concurrent reads of tiered storage.",
    "remote.log.storage.manager.class.name": "Must be empty: rsm.config.url names the object "
    "store.",
    "remote.log.storage.manager.impl.prefix": "Prefix of the keys for the object store.",
    "remote.log.storage.system.enable": "Whether topics may have tiered storage.",
    "remote.storage.enable": "Whether closed segments are copied to tiered storage.",
    "replica.fetch.backoff.ms": "Backoff of a follower after a failed fetch.",
    "replica.fetch.max.bytes": "Maximum bytes of one partition in a follower's fetch; a single "
    "larger batch is still sent.",
    "replica.fetch.min.bytes": "Bytes that a leader waits for before it answers a follower.",
    "replica.fetch.response.max.bytes": "Maximum bytes of one response to a follower.",
    "replica.fetch.wait.max.ms": "Time that a leader waits for bytes before it answers a follower.",
    "replica.high.watermark.checkpoint.interval.ms": "Interval between checkpoints of the high "
    "watermarks.",
    "replica.lag.time.max.ms": "Time after which a follower that has not caught up is out of sync.",
    "replica.selector.class": "Class that selects the replica from which a consumer fetches; only "
    "Kafka's rack-aware selector is supported.",
    "replica.socket.timeout.ms": "Time that a follower waits for an answer of its leader.",
    "replication.quota.window.num": "Samples of the rate of throttled replicas.",
    "replication.quota.window.size.seconds": "Length of one such sample.",
    "retention.bytes": "Size of a partition above which its oldest segments are deleted.",
    "retention.ms": "Age at which segments are deleted; -1 for never.",
    "security.inter.broker.protocol": "Security protocol of the listener between brokers, if "
    "inter.broker.listener.name is not set.",
    "segment.bytes": "Size at which a segment is closed.",
    "segment.index.bytes": "Size of an index at which the segment is closed.",
    "segment.jitter.ms": "Maximum random reduction of segment.ms, so that segments do not close "
    "at once.",
    "segment.ms": "Age at which a segment is closed.",
    "socket.listen.backlog.size": "Length of the queue of connections that are not accepted yet.",
    "socket.request.max.bytes": "Maximum size of a request.",
    "transaction.state.log.min.isr": "min.insync.replicas of the transaction log's topic.",
    "transaction.state.log.num.partitions": "Partitions of the transaction log's topic.",
    "transaction.state.log.replication.factor": "Replicas of the transaction log's topic.",
    "transaction.state.log.segment.bytes": "Size at which a segment of the transaction log's topic "
    "is closed.",
    "unclean.leader.election.interval.ms": "Interval between checks of partitions without a "
    "leader; enabling unclean election checks them at once.",
    "unclean.leader.election.enable": "Whether a replica that may lack records can be elected if "
    "no other can.",
    "unclean.recovery.manager.enabled": "Whether the controller compares the logs of all replicas "
    "before it elects one that may lack records; otherwise it elects one that is alive (KIP-966, "
    "part 2; in no release of Kafka).",
    "unclean.recovery.strategy": "Strategy if no replica is known to have every record: "
    "Aggressive elects the longest log of the live replicas, Balanced waits for all replicas that "
    "may have every record, None waits for an operator (KIP-966, part 2; in no release of Kafka).",
    "unclean.recovery.timeout.ms": "Time that an unclean recovery waits for optional replicas.",
    "unstable.api.versions.enable": "Whether clients are offered API versions that are in no "
    "Kafka release.",
}
