"""The planted bugs of elections: eligible leader replicas and unclean recovery (KIP-966)."""

from __future__ import annotations

from testkit.planting import Bug, bug

ELR = "controller.elections.elr"
RULES = "controller.elections.recovery_rules"
RECOVERY = "controller.elections.recovery:UncleanRecovery"
PARTITION = "broker.replication.partition.partition:Partition"
FAMILY = "elections"

ELECTIONS: tuple[Bug, ...] = (
    bug(
        "ELR kept at min ISR",
        FAMILY,
        "P9|P2|P8",
        "who left the ISR stays eligible though it is at min ISR again",
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
        "unclean taken for clean",
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
        "no registration taken for clean",
        FAMILY,
        "P11|P2|P1|P7|P8",
        "a registration that follows no other one counts as one after a clean shutdown",
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
        "registration is never repeated",
        FAMILY,
        "P26",
        "brokers do not register again when the level of metadata begins to have log directories",
        (
            "broker.replication.requests.directory_reports:DirectoryReports.lacks_directories",
            "registered is not None",
            "False",
        ),
    ),
    bug(
        "replicas are reported with their role alone",
        FAMILY,
        "P26",
        "a broker does not report the replicas that it had before it registered its directory",
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
        "an election from the ELR says that records may be lost",
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
        "fenced winner",
        FAMILY,
        "P21|P9|P10|P13",
        "the longest log is elected though its broker is fenced by now",
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
        "answer of an older life",
        FAMILY,
        "P21|P2|P1|P7",
        "an answer counts for whatever life of its broker is registered",
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
        "Balanced does not wait for one of those that may have everything",
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
        "a broker says the epoch that it began as leader, not that of its last batch",
        (
            "broker.apis.get_replica_log_info:_fill",
            "log.last_batch_epoch",
            "log.latest_epoch",
        ),
        # Who follows drops an epoch that it began without a record.
        (
            f"{PARTITION}.become_follower",
            "self.log.truncate_to(self.log.log_end_offset)",
            "pass",
        ),
        (
            "storage.log.recovery:load_log",
            "epochs.truncate_from_end(end + 1 if end == local else end)",
            "pass",
        ),
    ),
    bug(
        "raised minimum unread",
        FAMILY,
        "P2|P1|P7|P12",
        "a leader whose ISR shrinks commits by the lower min ISR that it still knows",
        (
            f"{PARTITION}.isr_answered",
            "self._unread_isr |= shrinks or len(self.isr) < self.effective_min_isr",
            "pass",
        ),
    ),
    bug(
        "one last known with the manager",
        FAMILY,
        "P8|P21|P2",
        "LastKnownELR is the last leader alone though the manager is on",
        (
            "controller.elections.context:ElectionContext._resolve",
            "LastKnownMode.WHOLE_SET if managed else LastKnownMode.LAST_LEADER",
            "LastKnownMode.LAST_LEADER",
        ),
    ),
)
"""High watermark under min ISR is `below min ISR` of the replication's."""
