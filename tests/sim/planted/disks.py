"""Planted bugs of disks: files replaced in place, and an empty disk that counts as the old one."""

from __future__ import annotations

from testkit.planting import Bug, bug

DISKS: tuple[Bug, ...] = (
    bug(
        "files replaced in place",
        "log",
        "F",
        "a small file is overwritten in place, without a flush",
        (
            "storage.files.lossy:LossyFiles.write_atomic",
            "self.write_new(temporary, data)",
            "file = self.open(path, create=True); file.truncate(0); file.append(data); return",
        ),
    ),
    bug(
        "no marker of a clean stop",
        "log",
        "P11",
        "a clean stop leaves no marker, so the next start recovers every log",
        ("storage.log.manager:LogManager.close", "if clean:", "if False:"),
    ),
    bug(
        "marker of a clean stop ignored",
        "log",
        "P11",
        "a start recovers every log even after a clean stop",
        (
            "storage.log.manager:LogManager.load_steps",
            "self.report.clean = self._take_clean_marker()",
            "self._take_clean_marker()",
        ),
    ),
    bug(
        "any directory online",
        "controller",
        "P1|P2|P4|P6|P17",
        "controllers elect a replica whose directory its broker does not have",
        (
            "controller.elections.eligibility:is_online",
            "return not broker.directories or directory in broker.directories",
            "return True",
        ),
    ),
    bug(
        "new directory accepted at once",
        "controller",
        "P1|P2|P4|P6|P17",
        "controllers accept a new directory of a replica that its partition waits for",
        (
            "controller.brokers.directories:_is_relied_on",
            "return current.leader == NO_LEADER and broker_id in clean",
            "return False",
        ),
        (
            "broker.replication.requests.replica_directories:ReplicaDirectories._is_elsewhere",
            "if partition is None or partition.leader == NO_LEADER:",
            "if partition is None:",
        ),
    ),
)
