"""The planted bugs of elections: eligible leader replicas and unclean recovery (KIP-966)."""

from __future__ import annotations

from testkit.planting import Bug, bug

ELR = "controller.elections.elr"
RULES = "controller.elections.recovery_rules"
RECOVERY = "controller.elections.recovery:UncleanRecovery"
PARTITION = "broker.replication.partition"
FAMILY = "elections"

ELECTIONS: tuple[Bug, ...] = (
    bug(
        "ELR kept at min ISR",
        FAMILY,
        "P9|P2|P8",
        "a replica stays in the ELR although the ISR is at min ISR again",
        (
            f"{ELR}:eligible_sets",
            "if len(after.isr) >= effective_min_isr(min_isr, len(after.replicas)):",
            "if not after.isr:",
        ),
        (
            f"{ELR}:standing_elr",
            "return ()",
            "return tuple(r for r in before.elr if r in replicas and r not in isr)",
        ),
    ),
    bug(
        "unclean shutdown counted as clean",
        FAMILY,
        "P11|P2|P1|P7|P8",
        "an unclean shutdown counts as a clean one",
        (
            "controller.brokers.registration:_leave_behind",
            "clean = existing is not None and request.previous_broker_epoch == existing.epoch",
            "clean = True",
        ),
    ),
    bug(
        "first registration counted as clean",
        FAMILY,
        "P11|P2|P1|P7|P8",
        "a first registration counts as one after a clean shutdown",
        (
            "controller.brokers.registration:_leave_behind",
            "clean = existing is not None and request.previous_broker_epoch == existing.epoch",
            "clean = existing is None or request.previous_broker_epoch == existing.epoch",
        ),
        (
            "controller.brokers.registration:decide_unregister_broker",
            "clean=False",
            "clean=True",
        ),
    ),
    bug(
        "registration not repeated",
        FAMILY,
        "P26",
        "brokers do not register again when metadata.version starts to support directories",
        (
            "broker.replication.requests.directory_reports:DirectoryReports.lacks_directories",
            "registered is not None",
            "False",
        ),
    ),
    bug(
        "directories of old replicas not reported",
        FAMILY,
        "P26",
        "a broker does not report replicas from before it registered its directory",
        (
            "broker.replication.requests.directory_reports:DirectoryReports.published",
            "self.replicas.look_at_all((one.topic_id, one.index) for one in replicas)",
            "pass",
        ),
    ),
    bug(
        "ELR election marked unclean",
        FAMILY,
        "P22",
        "an election from the ELR is recorded as one that may lose records",
        (
            "controller.elections.partition_change:_apply_election",
            "if elected.unclean:",
            "if elected.unclean or elected.from_elr:",
        ),
    ),
    bug(
        "ELR election counted as unclean",
        FAMILY,
        "P22",
        "an election from the ELR is counted as one that may lose records",
        (
            "controller.writer.stats:ControllerStats.count_elections",
            "self.by_kind[ElectedAs(record.election_kind)] += 1",
            "self.by_kind[ElectedAs((0, 1, 2, 5, 4, 5, 6, 7)[record.election_kind])] += 1",
        ),
    ),
    bug(
        "fenced replica wins a recovery",
        FAMILY,
        "P21|P9|P10|P13",
        "a recovery elects the longest log although its broker is fenced now",
        (
            "controller.elections.recovery_examination:_resolve",
            "alive=tuple(r for r in partition.replicas if is_eligible(eligibility_of(r))),",
            "alive=tuple(r for r in partition.replicas if not (partition.isr or elr) "
            "or is_eligible(eligibility_of(r))),",
        ),
        (
            "controller.elections.election:_elect_this",
            "or not is_eligible(eligibility_of(wanted.broker_id))",
            "",
        ),
    ),
    bug(
        "response of an earlier incarnation",
        FAMILY,
        "P21|P2|P1|P7",
        "a recovery uses a response whatever incarnation of its broker is registered",
        (f"{RECOVERY}._answered", "broker.epoch != response.broker_epoch", "False"),
        (
            "controller.elections.log_facts:counted",
            "known is not None and known[0] == broker_epoch",
            "known is not None",
        ),
    ),
    bug(
        "Balanced without one member",
        FAMILY,
        "P21|P2|P1|P7",
        "a Balanced recovery does not wait for one of the possibly complete replicas",
        (
            f"{RULES}:_balanced",
            "if standing.gone:",
            "if standing.gone[1:]:",
        ),
    ),
    bug(
        "epoch cache for the last batch",
        FAMILY,
        "P21|P2|P1",
        "a broker reports the epoch that it began as leader, not that of its last batch",
        (
            "broker.apis.get_replica_log_info:_fill",
            "log.history.last_batch_epoch",
            "log.latest_epoch",
        ),
        # A follower drops an epoch that it began without a record.
        (
            f"{PARTITION}.leadership:become_follower",
            "partition.log.truncate_to(partition.log.log_end_offset)",
            "pass",
        ),
        (
            "storage.log.recovery:load_log",
            "epochs.truncate_from_end(end + 1 if end == local else end)",
            "pass",
        ),
    ),
    bug(
        "raised min ISR unread",
        FAMILY,
        "P2|P1|P7|P12",
        "a leader whose ISR shrinks commits by a lower min ISR that it still has",
        (
            f"{PARTITION}.isr_changes:isr_answered",
            "partition.unread_isr |= shrinks or len(partition.isr) < partition.effective_min_isr",
            "pass",
        ),
    ),
    bug(
        "one last known with the manager",
        FAMILY,
        "P8|P21|P2",
        "LastKnownELR has only the last leader although the recovery manager is on",
        (
            "controller.elections.context:ElectionContext._resolve",
            "LastKnownMode.WHOLE_SET if managed else LastKnownMode.LAST_LEADER",
            "LastKnownMode.LAST_LEADER",
        ),
    ),
)
"""`below min ISR` of the family replication is about the high watermark under min ISR."""
