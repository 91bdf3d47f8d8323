"""kafka-metadata-quorum.sh: describe the metadata quorum, or remove a voter from it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

from client.admin import Admin
from client.cluster_client import ClusterClient
from client.errors import check
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say
from kraftbox.kafka_tools.options import add_bootstrap, bootstrap_of, columns, parser
from protocol.errors import ApiError
from protocol.ids import uuid_from_text, uuid_to_text
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_quorum import DescribeQuorumResponse
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.unregister_controller import UnregisterControllerRequest

Reply = DescribeQuorumResponse
State = DescribeQuorumResponse.ReplicaState
CONTROLLERS = 2


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    add_bootstrap(options, controllers=True)
    commands = options.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", allow_abbrev=False)
    shown = describe.add_mutually_exclusive_group(required=True)
    shown.add_argument("--status", action="store_true")
    shown.add_argument("--replication", "--re", action="store_true")
    describe.add_argument("--human-readable", "--hr", action="store_true")
    remove = commands.add_parser("remove-controller", allow_abbrev=False)
    remove.add_argument("--controller-id", "-i", type=int, required=True)
    remove.add_argument("--controller-directory-id", "-d", required=True, metavar="UUID")
    remove.add_argument("--dry-run", action="store_true")
    remove.add_argument(
        "--unregister", action="store_true", help="remove the registration afterwards, too"
    )
    given = options.parse_args(arguments)
    controllers = given.bootstrap_server is None
    if given.command == "remove-controller":
        directory_id = _directory_id(given.controller_directory_id)
        run(bootstrap_of(given), lambda client: remove_controller(client, given, directory_id))
        return 0

    async def work(client: ClusterClient) -> None:
        reply = await Admin(client).describe_quorum()
        if given.status:
            await _status(client, reply, controllers=controllers)
        else:
            _replication(reply, readable=given.human_readable)

    run(bootstrap_of(given), work)
    return 0


def _directory_id(text: str) -> bytes:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise CommandFailed(f"--controller-directory-id: {error}") from None


async def remove_controller(
    client: ClusterClient, given: argparse.Namespace, directory_id: bytes
) -> None:
    """Remove a voter, with `--unregister` also its registration (KIP-1312).

    Raises:
        CommandFailed: one of the steps was refused. A controller that left the quorum blocks
            upgrades of features while it is registered, so the message has the next command.
    """
    who, dry = f"controller {given.controller_id}", "DRY RUN of " if given.dry_run else ""
    voter = f"{who} with directory id {given.controller_directory_id}"
    step = f"failed to remove {voter} from the voters"
    try:
        if not given.dry_run:
            request = RemoveRaftVoterRequest(
                cluster_id=None, voter_id=given.controller_id, voter_directory_id=directory_id
            )
            gone = await client.request_any(request)
            check(gone.error_code, voter, gone.error_message)
        say(f"{dry}{'removing' if dry else 'Removed'} KRaft {voter}")
        if not given.unregister:
            return
        step = f"failed to unregister {who}"
        if not given.dry_run:
            done = await client.request_any(
                UnregisterControllerRequest(controller_id=given.controller_id)
            )
            check(done.error_code, who, done.error_message)
        say(f"{dry}{'unregistering' if dry else 'Unregistered'} {who}")
    except ApiError as error:
        rest = f"kafka-cluster.sh unregister-controller --id {given.controller_id}"
        hint = f"; to remove its registration, run {rest}" if given.unregister else ""
        raise CommandFailed(f"{step}: {error}{hint}") from None


async def _status(client: ClusterClient, reply: Reply, *, controllers: bool) -> None:
    found = reply.topics[0].partitions[0]
    cluster = await client.request_any(
        DescribeClusterRequest(endpoint_type=CONTROLLERS if controllers else 1)
    )
    leader_end = max((v.log_end_offset for v in found.current_voters), default=0)
    lags = [leader_end - v.log_end_offset for v in found.current_voters if v.log_end_offset >= 0]
    caught_up = [v.last_caught_up_timestamp for v in found.current_voters]
    oldest = min((at for at in caught_up if at >= 0), default=-1)
    now_ms = time.time_ns() // 1_000_000
    behind_ms = max(0, now_ms - oldest) if max(lags, default=0) > 0 and oldest >= 0 else 0
    endpoints = {
        node.node_id: [f"{end.name}://{end.host}:{end.port}" for end in node.listeners]
        for node in reply.nodes
    }
    for label, value in (
        ("ClusterId", cluster.cluster_id),
        ("LeaderId", found.leader_id),
        ("LeaderEpoch", found.leader_epoch),
        ("HighWatermark", found.high_watermark),
        ("MaxFollowerLag", max(lags, default=0)),
        ("MaxFollowerLagTimeMs", behind_ms),
        ("CurrentVoters", _replicas(found.current_voters, endpoints)),
        ("CurrentObservers", _replicas(found.observers, {})),
    ):
        say(f"{label + ':':<24}{value}")


def _replicas(states: Sequence[State], endpoints: dict[int, list[str]]) -> str:
    entries = []
    for state in sorted(states, key=lambda state: state.replica_id):
        entry: dict[str, object] = {
            "id": state.replica_id,
            "directoryId": _directory(state.replica_directory_id),
        }
        if state.replica_id in endpoints:
            entry["endpoints"] = endpoints[state.replica_id]
        entries.append(entry)
    return json.dumps(entries)


def _directory(directory_id: bytes) -> str | None:
    return uuid_to_text(directory_id) if any(directory_id) else None


def _replication(reply: Reply, *, readable: bool) -> None:
    found = reply.topics[0].partitions[0]
    leader_end = max((v.log_end_offset for v in found.current_voters), default=0)
    rows: list[tuple[object, ...]] = []
    for states, status in ((found.current_voters, "Follower"), (found.observers, "Observer")):
        for state in sorted(states, key=lambda state: state.replica_id):
            rows.append(
                (
                    state.replica_id,
                    _directory(state.replica_directory_id) or "AAAAAAAAAAAAAAAAAAAAAA",
                    state.log_end_offset,
                    leader_end - state.log_end_offset,
                    _when(state.last_fetch_timestamp, readable),
                    _when(state.last_caught_up_timestamp, readable),
                    "Leader" if state.replica_id == found.leader_id else status,
                )
            )
    rows.sort(key=lambda row: row[-1] != "Leader")
    heading = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp")
    columns([(*heading, "LastCaughtUpTimestamp", "Status"), *rows])


def _when(timestamp_ms: int, readable: bool) -> str:
    if not readable or timestamp_ms < 0:
        return str(timestamp_ms)
    return f"{max(0, time.time_ns() // 1_000_000 - timestamp_ms)} ms ago"
