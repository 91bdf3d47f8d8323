"""A sentence or two on the keys that something here acts on; loaded only to be shown."""

from __future__ import annotations

NO_EFFECT = "Kafka's key, known and checked; nothing here acts on it."

DOCS: dict[str, str] = {
    "advertised.listeners": "Addresses that the broker tells clients and other brokers to use.",
    "auto.create.topics.enable": "Whether a metadata request for an unknown topic creates it.",
    "auto.leader.rebalance.enable": "Whether the controller gives leadership back to preferred "
    "leaders by itself.",
    "broker.heartbeat.interval.ms": "How often a broker tells the controller that it lives.",
    "broker.id": "Another name of node.id; the two must agree.",
    "broker.rack": "The rack of this broker, for spreading replicas.",
    "broker.session.timeout.ms": "Silence after which the controller fences a broker.",
    "cleanup.policy": "Whether old records are deleted by age and size, compacted by key, or both.",
    "compression.gzip.level": "Effort of gzip, from 1 to 9; -1 for its own default.",
    "compression.lz4.level": "Effort of lz4.",
    "compression.type": "Codec of stored batches; `producer` keeps what the producer sent.",
    "compression.zstd.level": "Effort of zstd.",
    "connections.max.idle.ms": "A connection without a request for so long is closed.",
    "controlled.shutdown.enable": "Whether a stopping broker first asks the controller to move "
    "its leaderships.",
    "controller.listener.names": "Listeners that belong to the controller role.",
    "controller.quorum.bootstrap.servers": "Addresses from which the quorum is discovered.",
    "controller.quorum.election.backoff.max.ms": "Longest random pause before an election that "
    "failed is tried again.",
    "controller.quorum.election.timeout.ms": "How long a candidate waits for votes.",
    "controller.quorum.fetch.max.bytes": "Most bytes of metadata log in one fetch reply.",
    "controller.quorum.fetch.snapshot.max.bytes": "Most bytes of a metadata snapshot in one reply.",
    "controller.quorum.fetch.timeout.ms": "Time without a successful fetch from the leader after "
    "which a voter asks for an election.",
    "controller.quorum.request.timeout.ms": "How long a node of the quorum waits for an answer.",
    "controller.quorum.retry.backoff.ms": "Pause before a request within the quorum is tried "
    "again.",
    "controller.quorum.voters": "The fixed voters of the metadata quorum, as id@host:port.",
    "controller.quota.window.num": "Samples that give how much of a controller_mutation_rate can "
    "be saved up.",
    "controller.quota.window.size.seconds": "Length of one such sample.",
    "default.replication.factor": "Replicas of topics that are created without a number.",
    "delete.retention.ms": "How long a deletion marker stays after its record was compacted away.",
    "delete.topic.enable": "Whether topics may be deleted.",
    "fetch.max.bytes": "Upper limit of one fetch reply.",
    "file.delete.delay.ms": "Time between the removal of a file from the log and from the disk.",
    "flush.messages": "Records after which a log is flushed.",
    "flush.ms": "Time after which a log is flushed.",
    "follower.replication.throttled.rate": "Bytes per second that throttled replicas of this "
    "broker may fetch.",
    "follower.replication.throttled.replicas": "Replicas that fetch no faster than their brokers' "
    "limit, as partition:broker, or * for all.",
    "group.initial.rebalance.delay.ms": "How long an empty group waits for more members.",
    "group.max.session.timeout.ms": "Longest session timeout that a member may ask for.",
    "group.max.size": "Most members that one classic group may have.",
    "group.min.session.timeout.ms": "Shortest session timeout that a member may ask for.",
    "index.interval.bytes": "Bytes of log between two entries of the offset index.",
    "initial.broker.registration.timeout.ms": "Time within which a starting broker must be "
    "registered, or it gives up.",
    "inter.broker.listener.name": "The listener over which brokers talk to each other.",
    "internal.metadata.log.segment.bytes": "Size at which a segment of the metadata log is "
    "closed, without the usual least size.",
    "kraftbox.broker.connection.loss.fence.ms": "On a controller: a broker whose heartbeat "
    "connection its peer closes is fenced after this time, unless another carries a heartbeat "
    "before; after a change of controllers, one that has not spoken to the new one within "
    "controller.quorum.fetch.timeout.ms and this time. 0 leaves it to broker.session.timeout.ms, "
    "which is better for brokers of Apache Kafka: they do not speak up when a connection breaks.",
    "kraftbox.connection.max.inflight": "Requests of one connection that may wait for their reply "
    "before the socket is no longer read.",
    "kraftbox.fault.acks": "`leader` plants a bug: acks=all is answered as soon as the leader has "
    "the records. What a test of a cluster must find.",
    "kraftbox.fault.files": "`lossy` drops everything that was not flushed when the process dies, "
    "as a power cut would; `slow` makes flushes and cold reads take their time.",
    "kraftbox.fault.files.flush.ms": "How long a flush takes with kraftbox.fault.files=slow.",
    "kraftbox.fault.files.on.signal": "With kraftbox.fault.files=slow the disk is fast at first, "
    "and SIGUSR2 makes it slow, or fast again.",
    "kraftbox.fault.files.read.ms": "How long a cold read takes with kraftbox.fault.files=slow.",
    "kraftbox.fault.stall.ms": "SIGUSR1 blocks the node's event loop for so long; 0 leaves the "
    "signal alone.",
    "kraftbox.files.open.max": "Files kept open at once; 0 takes a share of the process's limit.",
    "kraftbox.http.listener": "Where /healthz, /readyz and /metrics are served; empty for "
    "nowhere. When the default port is taken, the kernel chooses another.",
    "kraftbox.leader.discovery.enable": "Whether a refused produce or fetch names the new leader "
    "(KIP-951).",
    "kraftbox.log.format": "How log lines look.",
    "kraftbox.log.level": "The least level that is logged.",
    "kraftbox.log.requests": "Whether a broker logs every request that it answers.",
    "kraftbox.metrics.partitions": "Which partitions have series of their own.",
    "kraftbox.produce.decompressed.max.bytes": "Most bytes that one batch may hold when it has to "
    "be decompressed.",
    "kraftbox.produce.validate.records": "Whether every record of a produced batch is checked, as "
    "Kafka does, and not only the batch.",
    "leader.replication.throttled.rate": "Bytes per second that throttled replicas may fetch from "
    "this broker.",
    "leader.replication.throttled.replicas": "Replicas that are served no faster than their "
    "brokers' limit, as partition:broker, or * for all.",
    "listener.security.protocol.map": "The security protocol of each listener name.",
    "leader.imbalance.check.interval.seconds": "How often leadership is given back to preferred "
    "leaders.",
    "listeners": "Addresses to listen on, as NAME://host:port.",
    "local.retention.bytes": "Local size of a partition in tiered storage; -2 for retention.bytes.",
    "local.retention.ms": "Local age of segments in tiered storage; -2 for retention.ms.",
    "log.cleaner.backoff.ms": "Pause of the cleaner when there is nothing to clean.",
    "log.cleaner.dedupe.buffer.size": "Memory for the keys of one cleaning pass.",
    "log.cleaner.delete.retention.ms": "How long a deletion marker stays after its record was "
    "compacted away.",
    "log.cleaner.enable": "Whether compacted topics are compacted.",
    "log.cleaner.io.buffer.load.factor": "How full the memory for keys may get.",
    "log.cleaner.io.max.bytes.per.second": "How fast the cleaner may read and write.",
    "log.cleaner.max.compaction.lag.ms": "Age at which a record must become eligible for "
    "compaction.",
    "log.cleaner.min.cleanable.ratio": "Share of a log that has not been compacted, above which "
    "it is.",
    "log.cleaner.min.compaction.lag.ms": "Age before which a record is not compacted away.",
    "log.cleaner.threads": "Kafka's number of cleaner threads; here one worker cleans.",
    "log.cleanup.policy": "Whether old records are deleted by age and size, compacted by key, or "
    "both.",
    "log.dir": "The data directory when log.dirs is not given.",
    "log.dirs": "The data directory.",
    "log.flush.interval.messages": "Records after which a log is flushed.",
    "log.flush.interval.ms": "Time after which a log is flushed.",
    "log.flush.offset.checkpoint.interval.ms": "How often it is noted up to where logs are "
    "flushed.",
    "log.flush.scheduler.interval.ms": "Time after which a log is flushed; log.flush.interval.ms "
    "comes first.",
    "log.flush.start.offset.checkpoint.interval.ms": "How often it is noted where logs begin.",
    "log.index.interval.bytes": "Bytes of log between two entries of the offset index.",
    "log.index.size.max.bytes": "Size of an index at which the segment is rolled.",
    "log.local.retention.bytes": "Local size of a partition in tiered storage; -2 for "
    "log.retention.bytes.",
    "log.local.retention.ms": "Local age of segments in tiered storage; -2 for log.retention.ms.",
    "log.message.timestamp.after.max.ms": "How far a timestamp may lie ahead of the broker's "
    "clock.",
    "log.message.timestamp.before.max.ms": "How far a timestamp may lie behind the broker's clock.",
    "log.message.timestamp.type": "Whether records keep the producer's timestamp or get the "
    "broker's.",
    "log.retention.bytes": "Size of a partition above which its oldest segments are deleted.",
    "log.retention.check.interval.ms": "How often old segments are looked for.",
    "log.retention.hours": "Age at which segments are deleted; log.retention.ms comes first.",
    "log.retention.minutes": "Age at which segments are deleted; log.retention.ms comes first.",
    "log.retention.ms": "Age at which segments are deleted; -1 for never.",
    "log.roll.hours": "Age at which a segment is closed; log.roll.ms comes first.",
    "log.roll.jitter.hours": "Random part taken off log.roll.hours; log.roll.jitter.ms comes "
    "first.",
    "log.roll.jitter.ms": "Random part taken off log.roll.ms, so that segments do not close at "
    "once.",
    "log.roll.ms": "Age at which a segment is closed.",
    "log.segment.bytes": "Size at which a segment is closed.",
    "log.segment.delete.delay.ms": "Time between the removal of a file from the log and from the "
    "disk.",
    "max.compaction.lag.ms": "Age at which a record must become eligible for compaction.",
    "max.connection.creation.rate": "Most new connections a second; what comes faster waits.",
    "max.connections": "Most connections of this broker.",
    "max.connections.per.ip": "Most connections from one address.",
    "max.connections.per.ip.overrides": "Other limits for single addresses, as host:count.",
    "max.incremental.fetch.session.cache.slots": "Most fetch sessions kept at once.",
    "max.message.bytes": "Largest record batch that is accepted.",
    "max.request.partition.size.limit": "Most partitions that one answer to "
    "DescribeTopicPartitions holds.",
    "message.max.bytes": "Largest record batch that is accepted.",
    "message.timestamp.after.max.ms": "How far a timestamp may lie ahead of the broker's clock.",
    "message.timestamp.before.max.ms": "How far a timestamp may lie behind the broker's clock.",
    "message.timestamp.type": "Whether records keep the producer's timestamp or get the broker's.",
    "metadata.log.dir": "Where the metadata log lives, if not in the data directory.",
    "metadata.log.max.record.bytes.between.snapshots": "Bytes of metadata log after which a "
    "snapshot is written.",
    "metadata.log.max.snapshot.interval.ms": "Time after which a snapshot is written if there is "
    "anything new.",
    "metadata.log.segment.bytes": "Size at which a segment of the metadata log is closed.",
    "metadata.log.segment.ms": "Age at which a segment of the metadata log is closed.",
    "metadata.max.idle.interval.ms": "How often the active controller writes a no-op record; 0 "
    "for never.",
    "metadata.max.retention.bytes": "Size of metadata log and snapshots above which the oldest "
    "that a snapshot covers are deleted.",
    "metadata.max.retention.ms": "Age at which metadata log and snapshots that a newer snapshot "
    "covers are deleted.",
    "min.cleanable.dirty.ratio": "Share of a log that has not been compacted, above which it is.",
    "min.compaction.lag.ms": "Age before which a record is not compacted away.",
    "min.insync.replicas": "In-sync replicas that a write with acks=all needs.",
    "node.id": "The number of this node, different from every other node's.",
    "num.replica.fetchers": "Connections over which a follower fetches from each leader.",
    "num.partitions": "Partitions of topics that are created without a number.",
    "offset.metadata.max.bytes": "Longest metadata text of a committed offset.",
    "offsets.commit.timeout.ms": "How long a commit of offsets waits to be replicated.",
    "offsets.retention.check.interval.ms": "How often offsets that have expired are looked for.",
    "offsets.retention.minutes": "Time after which offsets of an empty group are forgotten.",
    "offsets.topic.compression.codec": "Number of the codec in which batches of the offsets topic "
    "are written.",
    "offsets.topic.num.partitions": "Partitions of the offsets topic.",
    "offsets.topic.replication.factor": "Replicas of the offsets topic.",
    "offsets.topic.segment.bytes": "Size at which a segment of the offsets topic is closed.",
    "process.roles": "What this node does: broker, controller, or both.",
    "producer.id.expiration.check.interval.ms": "How often idle producers are looked for.",
    "producer.id.expiration.ms": "Time after which an idle producer's state is forgotten.",
    "queued.max.request.bytes": "Memory for requests that are being read; beyond it sockets are "
    "not read. -1 for no limit.",
    "quota.window.num": "Samples that a rate is measured over.",
    "quota.window.size.seconds": "Length of one sample of a rate.",
    "remote.storage.enable": "Whether closed segments are copied to tiered storage; not built so "
    "far.",
    "replica.fetch.backoff.ms": "Pause of a follower after a fetch that failed.",
    "replica.fetch.max.bytes": "Most bytes of one partition in a follower's fetch; a single larger "
    "batch is still sent.",
    "replica.fetch.min.bytes": "Bytes that a leader waits for before it answers a follower.",
    "replica.fetch.response.max.bytes": "Upper limit of one reply to a follower.",
    "replica.fetch.wait.max.ms": "How long a leader waits for bytes before it answers a follower.",
    "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks are noted on disk.",
    "replica.lag.time.max.ms": "Time after which a follower that has not caught up is out of sync.",
    "replica.selector.class": "Chooses the replica that a consumer fetches from; Kafka's "
    "rack-aware selector is known.",
    "replica.socket.timeout.ms": "How long a follower waits for an answer of its leader.",
    "replication.quota.window.num": "Samples that the rate of throttled replicas is measured over.",
    "replication.quota.window.size.seconds": "Length of one such sample.",
    "retention.bytes": "Size of a partition above which its oldest segments are deleted.",
    "retention.ms": "Age at which segments are deleted; -1 for never.",
    "segment.bytes": "Size at which a segment is closed.",
    "segment.index.bytes": "Size of an index at which the segment is rolled.",
    "segment.jitter.ms": "Random part taken off segment.ms, so that segments do not close at once.",
    "segment.ms": "Age at which a segment is closed.",
    "share.coordinator.state.topic.min.isr": "In-sync replicas that writes to the share groups' "
    "topic need.",
    "share.coordinator.state.topic.replication.factor": "Replicas of the share groups' topic.",
    "socket.listen.backlog.size": "Connections that may wait to be served.",
    "socket.request.max.bytes": "Largest request that is read.",
    "transaction.state.log.min.isr": "In-sync replicas that writes to the transactions' topic "
    "need.",
    "transaction.state.log.replication.factor": "Replicas of the transactions' topic.",
    "unclean.leader.election.interval.ms": "How often partitions without a leader are looked at "
    "again; they are at once when unclean election becomes allowed.",
    "unclean.leader.election.enable": "Whether a replica that may miss records can lead when no "
    "other can.",
    "unstable.api.versions.enable": "Whether clients are offered versions that no Kafka release "
    "has.",
}
