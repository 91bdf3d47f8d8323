"""The table of planted bugs, by name.

This file has the bugs of replication, log, controller, coordinators and transport; the other
families have a file each.
"""

from __future__ import annotations

from testkit.planting import Bug
from testkit.planting import bug as _bug
from tests.sim.planted.disks import DISKS
from tests.sim.planted.elections import ELECTIONS
from tests.sim.planted.groups import GROUPS
from tests.sim.planted.leaks import LEAKS
from tests.sim.planted.quorum import QUORUM
from tests.sim.planted.replicas import REPLICAS
from tests.sim.planted.tiers import TIERS

PARTITION = "broker.replication.partition"
APPENDER = "storage.log.appender:LogAppender"
DURABILITY = "storage.log.durability:LogDurability"
TRUNCATION = "storage.log.truncation:LogTruncation"
BOUNDS = "storage.log.bounds:LogBounds"
ISR = "controller.topics.isr"
ACTIVATION = "controller.writer.activation"
REGISTRATION = "controller.brokers.registration"


_REPLICATION = [
    _bug(
        "high watermark at the log end",
        "replication",
        "P12",
        "a leader advances its high watermark without its followers",
        (
            f"{PARTITION}.high_watermark:maybe_advance_high_watermark",
            "if len(partition.maximal_isr) > 1 or partition.node_id not in partition.maximal_isr:",
            "if False:",
        ),
    ),
    _bug(
        "proposed members ignored",
        "replication",
        "P12",
        "the high watermark does not wait for members that the leader has proposed",
        (
            f"{PARTITION}.high_watermark:maybe_advance_high_watermark",
            "for replica_id in partition.maximal_isr:",
            "for replica_id in partition.isr:",
        ),
    ),
    _bug(
        "below min ISR",
        "replication",
        "P12|H",
        "the high watermark advances below min ISR",
        (
            f"{PARTITION}.high_watermark:maybe_advance_high_watermark",
            "len(partition.isr) < partition.min_isr",
            "False",
        ),
    ),
    _bug(
        "progress kept across elections",
        "replication",
        "P12|P13|P1|F",
        "a leader keeps the fetch offsets that followers sent to an earlier leader",
        (f"{PARTITION}.leadership:become_leader", "partition.remote = {}", "pass"),
        (f"{PARTITION}.leadership:become_follower", "partition.remote = {}", "pass"),
    ),
    _bug(
        "joins below the epoch start",
        "replication",
        "P13",
        "a follower joins the ISR before it reaches the start of the leader epoch",
        (
            "broker.replication.partition.remote_replica:RemoteReplica.may_join",
            " and self.log_end >= leader_epoch_start",
            "",
        ),
    ),
    _bug(
        "joins early",
        "replication",
        "P13",
        "a follower joins the ISR whatever its log end",
        (
            "broker.replication.partition.remote_replica:RemoteReplica.may_join",
            "return self.log_end >= high_watermark and self.log_end >= leader_epoch_start",
            "return True",
        ),
    ),
    _bug(
        "fetch of an earlier incarnation",
        "replication",
        "P12|P13|P2",
        "a leader counts a Fetch from before the follower's restart (KIP-903)",
        (
            "broker.fetch.follower:Follower._is_current",
            "return registered is not None and registered.epoch == self._broker_epoch",
            "return registered is not None",
        ),
        (
            f"{PARTITION}.followers:follower_fetched",
            "if broker_epoch < remote.broker_epoch:",
            "if False:",
        ),
        (
            f"{ISR}:isr_eligibility",
            "if member.epoch not in (UNKNOWN_BROKER_EPOCH, broker.epoch):",
            "if False:",
        ),
        (
            "broker.replication.replicas.replica_manager:ReplicaManager.may_join_isr",
            "and broker.epoch == broker_epoch",
            "",
        ),
        (
            "broker.fetch.follower:Follower.begin",
            "self._broker.sessions.forget_earlier_lives(self._replica_id, self._broker_epoch)",
            "pass",
        ),
        (
            "broker.fetch.follower:Follower.begin",
            "0 <= self._broker_epoch < registered.epoch",
            "False",
        ),
        (
            "broker.replication.sessions.fetch_session:FetchSessionCache.followers_registered",
            "self.forget(session_id)",
            "pass",
        ),
    ),
    _bug(
        "truncated to the high watermark",
        "replication",
        "P1|P2|P4|P12",
        "a follower truncates to its own high watermark (before KIP-101)",
        (
            f"{PARTITION}.leadership:become_follower",
            "partition.log.truncate_to(partition.log.log_end_offset)",
            "partition.log.truncate_to(partition.log.high_watermark)",
        ),
    ),
    _bug(
        "truncated to the leader's end",
        "replication",
        "P17|P4|P26|P18|P12|F",
        "a follower truncates to the leader's end offset even if its own is smaller",
        (
            "broker.replication.fetching.follower:truncate_to_common",
            "min(own_end, end_offset)",
            "end_offset",
        ),
    ),
    _bug(
        "never truncated",
        "replication",
        "P17|P26|P4|P18",
        "a follower keeps a diverging log",
        (
            "broker.replication.fetching.follower:truncate_to_common",
            "return truncate(partition, target)",
            "return False",
        ),
    ),
    _bug(
        "no divergence reported",
        "replication",
        "P1|P4|P17|P18|P26",
        "a leader does not report where a follower's log diverges (KIP-595)",
        (
            "broker.fetch.reading:divergence",
            "if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:",
            "if False:",
        ),
    ),
    _bug(
        "truncated below the common end",
        "replication",
        "P17",
        "a follower truncates ten records that the leader has, too",
        (
            "broker.replication.fetching.follower:truncate_to_common",
            "return truncate(partition, target)",
            "return truncate(partition, max(log.log_start_offset, target - 10))",
        ),
    ),
    _bug(
        "wrong leader named",
        "replication",
        "P24",
        "an error names the preferred replica as the leader of the current epoch",
        (
            "broker.metadata.cache:MetadataCache.leader_hint",
            "partition.leader,\n        partition.leader_epoch,",
            "partition.replicas[0],\n        partition.leader_epoch,",
        ),
    ),
    _bug(
        "fetched checksum unchecked",
        "replication",
        "P4|H",
        "a follower appends fetched batches without checking the checksum",
        (
            "storage.log.append:judge_fetched",
            "if not crc_ok(buf, pos, header.size_bytes):",
            "if False:",
        ),
    ),
    _bug(
        "stale fetch response applied",
        "replication",
        "P|F",
        "a follower applies a response from before a truncation or an election",
        (
            "broker.replication.fetching.fetcher:Fetcher.answered",
            "if serial < followed.serial:",
            "if False:",
        ),
    ),
    _bug(
        "epoch not in the file",
        "replication",
        "P18",
        "a leader shows records whose epoch is not in leader-epoch-checkpoint",
        (
            f"{PARTITION}.high_watermark:maybe_advance_high_watermark",
            "if target > log.high_watermark and target >= log.epoch_file.limit:",
            "if False:",
        ),
    ),
    _bug(
        "acknowledged before replication",
        "replication",
        "H|P6",
        "a leader acknowledges acks=all before replication",
        (
            f"{PARTITION}.partition:Partition.wait_for_commit",
            "if self.log.high_watermark >= end_offset:",
            "if True:",
        ),
    ),
    _bug(
        "uncommitted shown",
        "replication",
        "H|P6",
        "consumers can read above the high watermark",
        (
            "broker.fetch.consumer:Consumer._visible_end",
            "return log.bounds.high_watermark",
            "return log.log_end_offset",
        ),
        (
            "broker.fetch.consumer:Consumer._visible_end",
            "return log.last_stable_offset",
            "return log.log_end_offset",
        ),
    ),
    _bug(
        "epoch start not recorded",
        "replication",
        "P18|P4|P26|F",
        "a new leader does not record the start of its epoch",
        (
            f"{PARTITION}.leadership:become_leader",
            "partition.log.history.lead(leader_epoch)",
            "pass",
        ),
        (f"{APPENDER}._write_plain", "if leader_epoch > self._epochs.latest_epoch:", "if False:"),
    ),
    _bug(
        "high watermark unsettled",
        "replication",
        "P14|H",
        "a new leader responds with a high watermark that is too low",
        (f"{PARTITION}.partition:Partition.high_watermark_settled", "return ", "return True or "),
    ),
]
UNIDENTIFIED_LOG = (
    "storage.log.manager:is_unidentified",
    "return log.topic_id is None and log.log_end_offset > 0",
    "return False",
)
"""The guard behind recovery: if a power cut took a log's topic id, too, the log is renamed to
`-stray` whatever it contains."""
_LOG = [
    _bug(
        "recovery point above the end",
        "log",
        "P|F",
        "a truncation leaves the recovery point above the log end",
        (f"{BOUNDS}.end_at", "self.recovery_point = min(self.recovery_point, end)", "pass"),
    ),
    _bug(
        "producers after a truncation",
        "log",
        "H|T|P|F",
        "a truncation does not rebuild the producer state",
        (
            "storage.log.producer_history:ProducerHistory.reload",
            "recovery.load_producers(",
            "(lambda *_: None)(",
        ),
    ),
    _bug(
        "epochs after a truncation",
        "log",
        "P17|P18|P4|F",
        "a truncation leaves the epochs of the removed records",
        (f"{TRUNCATION}._truncate", "self._history.cache.truncate_from_end(end)", "pass"),
    ),
    _bug(
        "appended during a flush",
        "log",
        "M|P|H",
        "records appended during a flush count as durable",
        (
            f"{DURABILITY}.flush",
            "bounds.flushed_to(target)",
            "bounds.flushed_to(bounds.log_end_offset)",
        ),
    ),
    _bug(
        "flush across a truncation",
        "log",
        "P|H|F",
        "a flush moves the recovery point although the log was truncated meanwhile",
        (f"{DURABILITY}.flush", "if truncations == bounds.truncations:", "if True:"),
    ),
    _bug(
        "roll after a truncation",
        "log",
        "P|F",
        "a roll after a truncation flushes nothing",
        (
            f"{APPENDER}.roll",
            "if bounds.cut_unflushed or "
            "bounds.checkpointed_recovery_point > bounds.recovery_point:",
            "if False:",
        ),
    ),
    _bug(
        "segments behind a hole",
        "log",
        "P|F",
        "recovery keeps segments behind a gap in the offsets",
        ("storage.log.recovery:_is_hole", "not request.config.compacted", "False"),
        UNIDENTIFIED_LOG,
    ),
    _bug(
        "flush does nothing",
        "log",
        "P|H|M",
        "a flush of a log flushes nothing",
        (f"{DURABILITY}.flush", "await self._files.flush(self.unflushed_files())", "pass"),
    ),
    _bug(
        "checkpoint above an unflushed truncation",
        "log",
        "P4",
        "a checkpointed high watermark covers records that a power cut may restore",
        (f"{BOUNDS}.durable_high_watermark", "if self.cut_unflushed", "if False"),
    ),
    _bug(
        "recovery always skipped",
        "log",
        "P|H|F",
        "a start skips recovery even after a power cut",
        ("storage.log.manager:LogManager._take_clean_marker", "return False", "return True"),
        UNIDENTIFIED_LOG,
    ),
    _bug(
        "clean shutdown forgotten",
        "log",
        "P11",
        "a failed start erases the broker epoch of the last clean shutdown",
        (
            "storage.log.manager:LogManager.close",
            "broker_epoch = self.previous_broker_epoch",
            "pass",
        ),
    ),
    _bug(
        "duplicates written",
        "log",
        "H|T",
        "a leader appends a producer's retry again",
        (
            "storage.log.producers:ProducerStates.check",
            "if origin is not Origin.CLIENT and origin is not Origin.COORDINATOR:",
            "if True:",
        ),
    ),
    _bug(
        "no checksum on recovery",
        "log",
        "P|F",
        "recovery does not check the checksums of batches",
        ("storage.log.recovery:_read_anew", "check_crc=True", "check_crc=False"),
        UNIDENTIFIED_LOG,
    ),
]
REGISTERS_AT_ONCE = (
    f"{REGISTRATION}:_check_identity",
    "if existing is None or same_process or existing.fenced:",
    "if True:",
)
BOTH_SNAPSHOTS = (
    "metalog.format:format_directories",
    "_write_first_snapshot(files, clock, directory, first_records, kraft_version, voters)",
    "_write_first_snapshot(files, clock, directory, first_records, kraft_version, voters)\n"
    "            from metalog.quorum import snapshots\n"
    "            older = [(one, 0) for one in feature_records({METADATA_VERSION: 29})]\n"
    "            snapshots.write_snapshot(\n"
    "                files,\n"
    "                posixpath.join(directory, snapshots.BOOTSTRAP_FILE),\n"
    "                snapshots.snapshot_parts(\n"
    "                    snapshots.FIRST_SNAPSHOT, older,\n"
    "                    last_contained_timestamp_ms=0, timestamp_ms=0\n"
    "                ),\n"
    "            )",
)
"""Formatting leaves a bootstrap.checkpoint of an earlier release, too, with another level."""
_CONTROLLER = [
    _bug(
        "first records appended twice",
        "controller",
        "M18",
        "a new controller writes the first records of the cluster again",
        (f"{ACTIVATION}:activation_records", "if has_metadata:", "if False:"),
    ),
    _bug(
        "bootstrap.checkpoint preferred to the snapshot",
        "controller",
        "M18",
        "the first records are those of a bootstrap.checkpoint next to the 0-0 snapshot (KIP-1170)",
        (
            "metalog.first_records:read_first_records",
            "(first_snapshot, posixpath.join(metadata_dir, BOOTSTRAP_FILE))",
            "(posixpath.join(metadata_dir, BOOTSTRAP_FILE), first_snapshot)",
        ),
        situation=(BOTH_SNAPSHOTS,),
    ),
    _bug(
        "unclean by default",
        "controller",
        "P2|P1|P7",
        "a controller elects a replica outside the ISR without an operator's request",
        (
            "controller.elections.election:_elect_uncleanly",
            "if election is Wish.UNCLEAN:",
            "if True:",
        ),
    ),
    _bug(
        "elected outside the ISR",
        "controller",
        "P2|P21|P1|P7",
        "a clean election takes the first live replica, in the ISR or not",
        (
            "controller.elections.election:_elect_clean",
            "in_isr = tuple(r for r in candidates.ordered if r in candidates.isr)",
            "in_isr = candidates.ordered",
        ),
    ),
    _bug(
        "stays in its ISRs",
        "controller",
        "P2|P13|P12|P16|P1",
        "a broker stays in its ISRs after an unclean shutdown",
        (
            f"{REGISTRATION}:decide_register_broker",
            "part = _leave_behind(view, request, existing, since)",
            "part = Part()",
        ),
        REGISTERS_AT_ONCE,
    ),
    _bug(
        "fenced broker elected",
        "controller",
        "P9|P10|P13",
        "a controller elects a fenced broker",
        (
            "controller.elections.eligibility:_registered_reason",
            "if broker.fenced and not joining:",
            "if False:",
        ),
    ),
    _bug(
        "fenced broker joins",
        "controller",
        "P13|P10",
        "a fenced broker joins an ISR",
        (f"{ISR}:isr_eligibility", "if broker.fenced:", "if False:"),
        (
            "broker.replication.replicas.replica_manager:ReplicaManager.may_join_isr",
            "and not broker.fenced",
            "",
        ),
    ),
    _bug(
        "old partition epoch",
        "controller",
        "P",
        "a controller accepts an AlterPartition with an older partition epoch",
        (
            f"{ISR}:_epoch_error",
            "if proposal.partition_epoch < current.partition_epoch:",
            "if False:",
        ),
    ),
    _bug(
        "two brokers with one id",
        "controller",
        "P16|P",
        "a second process with the same broker id registers at once",
        REGISTERS_AT_ONCE,
    ),
    _bug(
        "producer ids overlap",
        "controller",
        "T",
        "blocks of producer ids overlap",
        (
            "controller.brokers.producer_ids:decide_allocate_producer_ids",
            "next_producer_id=first + BLOCK_SIZE",
            "next_producer_id=first + 1",
        ),
    ),
    _bug(
        "empty ISR",
        "controller",
        "P10|P2|F",
        "the last member leaves the ISR without ELR",
        (
            "controller.elections.partition_change:_keep_one",
            "draft.isr = (before.leader if before.leader in stays else stays[0],)",
            "pass",
        ),
    ),
    _bug(
        "wrong member stays",
        "controller",
        "P2|P1|P10",
        "the last member of the ISR is any replica",
        (
            "controller.elections.partition_change:_keep_one",
            "stays = [r for r in before.isr if r in draft.replicas] or [draft.replicas[0]]",
            "stays = [draft.replicas[-1]]",
        ),
    ),
]
_COORDINATORS = [
    _bug(
        "commit before replication",
        "coordinators",
        "G9|G10|H",
        "a coordinator acknowledges and returns a commit before it is replicated",
        (
            "broker.coordinators.replicated_log:ReplicatedCoordinatorLog.append",
            "if not replica.wait_for_commit(info.last_offset + 1, _COMMIT, future):",
            "if not False:",
        ),
    ),
    _bug(
        "half of the log loaded",
        "coordinators",
        "G|H",
        "a coordinator loads only the first batches of its partition",
        (
            "broker.coordinators.replicated_log:ReplicatedCoordinatorLog.read_all",
            "if following <= offset:",
            "if True:",
        ),
        situation=(
            (
                "broker.coordinators.replicated_log:ReplicatedCoordinatorLog.read_all",
                "READ_BYTES",
                "500",
            ),
        ),
    ),
]
_TRANSPORT = [
    _bug(
        "responses overtake",
        "transport",
        "B5|P|H|F",
        "a response does not wait for the responses before it",
        ("protocol.transport.request_flow:RequestFlow._ready", "if exchange.waiting:", "if False:"),
    ),
    _bug(
        "fetch session misses changes",
        "transport",
        "P26|P",
        "a fetch session does not check which partitions have changed",
        (
            "broker.replication.sessions.fetch_session:FetchSession.to_look_at",
            "turn = self.watch.turn()",
            "turn = ()",
        ),
        (
            "broker.replication.sessions.follower_watch:FollowerWatch.more",
            "return len(self.due) > looked_at or self._left > 0",
            "return False",
        ),
    ),
    _bug(
        "no response at the timeout",
        "transport",
        "P26",
        "no response is sent to a Produce whose timeout is over",
        ("broker.replication.waiting.waits:ProduceWait.expired", "self._answer(self)", "pass"),
    ),
    _bug(
        "waiting fetch not woken",
        "transport",
        "P26|H|P",
        "an append does not wake the fetches that wait for it",
        (
            "broker.replication.subscriptions.subscriptions:Subscriptions.readable",
            "watch.touched(key, size_bytes)",
            "pass",
        ),
    ),
]
_ALL = (
    *QUORUM,
    *_REPLICATION,
    *_LOG,
    *DISKS,
    *_CONTROLLER,
    *_COORDINATORS,
    *GROUPS,
    *_TRANSPORT,
    *ELECTIONS,
    *TIERS,
    *REPLICAS,
    *LEAKS,
)
BUGS: dict[str, Bug] = {one.name: one for one in _ALL}
"""By name."""
