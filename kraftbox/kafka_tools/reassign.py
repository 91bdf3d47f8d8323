"""kafka-reassign-partitions.sh: move replicas to other brokers, with JSON files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from client.admin import Admin
from client.cluster_client import ClusterClient
from client.leaders import TopicPartition
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say, say_lines
from kraftbox.cli.reassign import Moving, moves
from kraftbox.kafka_tools.json_file import number_of, read_entries, topic_of
from kraftbox.kafka_tools.options import add_actions, add_bootstrap, bootstrap_of, chosen, parser

Assignment = dict[TopicPartition, list[int]]
ANY_DIRECTORY = "any"
THROTTLES = ("throttle", "replica-alter-log-dirs-throttle")


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    add_bootstrap(options, controllers=True)
    add_actions(options, ACTIONS)
    options.add_argument("--reassignment-json-file", metavar="FILE")
    options.add_argument("--topics-to-move-json-file", metavar="FILE")
    options.add_argument("--broker-list", metavar="ID,...")
    for throttle in THROTTLES:
        options.add_argument(f"--{throttle}", type=int, default=-1, help="not supported")
    options.add_argument("--timeout", type=int, help="accepted, without effect")
    options.add_argument(
        "--additional", action="store_true", help="allow other ongoing reassignments"
    )
    for flag in ("disable-rack-aware", "preserve-throttles"):
        options.add_argument(
            f"--{flag}", action="store_true", help="accepted; this is always the case"
        )
    given = options.parse_args(arguments)
    for throttle in THROTTLES:
        if getattr(given, throttle.replace("-", "_")) >= 0:
            raise CommandFailed(
                f"--{throttle} is not supported: set "
                "leader.replication.throttled.rate and "
                "follower.replication.throttled.rate of the brokers with "
                "kafka-configs"
            )
    action = chosen(given, ACTIONS)
    bootstrap = bootstrap_of(given)
    run(bootstrap, lambda client: ACTIONS[action](client, given))
    return 0


def read_assignment(path: str | None) -> Assignment:
    """Return the replicas that a file requests. Raises CommandFailed."""
    if path is None:
        raise CommandFailed("missing option --reassignment-json-file")
    found: Assignment = {}
    for entry in read_entries(path, "partitions"):
        key = topic_of(path, entry), number_of(path, entry, "partition")
        replicas, directories = entry.get("replicas"), entry.get("log_dirs", [])
        if (
            not isinstance(replicas, list)
            or not replicas
            or not all(type(one) is int and 0 <= one < 2**31 for one in replicas)
            or len(set(replicas)) != len(replicas)
        ):
            raise CommandFailed(f'{path}: {entry}: "replicas" must be different broker ids')
        if directories != [ANY_DIRECTORY] * len(directories):
            raise CommandFailed(f'{path}: {entry}: log_dirs may only be "{ANY_DIRECTORY}" here')
        if key in found:
            raise CommandFailed(f"{path}: duplicate partition {key[0]}-{key[1]}")
        found[key] = replicas
    return found


def document(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return the text of a file for --execute."""
    partitions: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(replicas),
            "log_dirs": [ANY_DIRECTORY] * len(replicas),
        }
        for (topic, index), replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def spread(current: Mapping[TopicPartition, Sequence[int]], brokers: Sequence[int]) -> Assignment:
    """Distribute the current number of replicas over these brokers in turn.

    Raises CommandFailed.
    """
    found: Assignment = {}
    for number, ((topic, index), replicas) in enumerate(sorted(current.items())):
        if len(replicas) > len(brokers):
            raise CommandFailed(
                f"{topic}-{index} has {len(replicas)} replicas, more than the {len(brokers)} "
                "brokers of --broker-list"
            )
        found[topic, index] = [brokers[(number + at) % len(brokers)] for at in range(len(replicas))]
    return found


async def _current(client: ClusterClient, topics: set[str]) -> Assignment:
    return {
        (name, one.partition_index): list(one.replica_nodes)
        for name in sorted(topics)
        for one in (await client.topic(name)).partitions
    }


async def _of(client: ClusterClient, wanted: Assignment) -> Assignment:
    """Return the current replicas of the requested partitions. Raises CommandFailed."""
    current = await _current(client, {topic for topic, _ in wanted})
    missing = sorted(wanted.keys() - current.keys())
    if missing:
        raise CommandFailed(f"partition {missing[0][0]}-{missing[0][1]} does not exist")
    return {key: current[key] for key in wanted}


async def _generate(client: ClusterClient, options: argparse.Namespace) -> None:
    path = options.topics_to_move_json_file
    if path is None or options.broker_list is None:
        raise CommandFailed("--generate needs --topics-to-move-json-file and --broker-list")
    topics = {topic_of(path, entry) for entry in read_entries(path, "topics")}
    ids = options.broker_list.split(",")
    if not all(one.strip().isdecimal() for one in ids):
        raise CommandFailed(f"--broker-list: expected ID,ID,..., got {options.broker_list!r}")
    brokers = list(dict.fromkeys(int(one) for one in ids))
    known = {broker.node_id for broker in (await client.metadata([])).brokers}
    if unknown := [one for one in brokers if one not in known]:
        raise CommandFailed(f"unknown broker {unknown[0]}")
    current = await _current(client, topics)
    say_lines(f"Current partition replica assignment\n{document(current)}\n")
    say_lines(
        f"Proposed partition reassignment configuration\n{document(spread(current, brokers))}"
    )


async def _execute(client: ClusterClient, options: argparse.Namespace) -> None:
    wanted = read_assignment(options.reassignment_json_file)
    admin = Admin(client)
    if not options.additional and await moves(admin, ()):
        raise CommandFailed(
            "other reassignments are ongoing: wait until they finish, or add --additional"
        )
    current = await _of(client, wanted)
    say_lines(f"Current partition replica assignment\n\n{document(current)}\n")
    say("Save this to use as the --reassignment-json-file option during rollback")
    await admin.reassign_all(wanted)
    plural = "s" if len(wanted) > 1 else ""
    say(f"Successfully started partition reassignment{plural} for {_names(wanted)}")


async def _verify(client: ClusterClient, options: argparse.Namespace) -> None:
    wanted = read_assignment(options.reassignment_json_file)
    going_on = {(m.topic, m.partition): m for m in await moves(Admin(client), list(wanted))}
    current = await _of(client, wanted)
    say("Status of partition reassignment:")
    for key, replicas in sorted(wanted.items()):
        say(status(key, replicas, current[key], going_on.get(key)))


def status(
    key: TopicPartition, wanted: Sequence[int], current: Sequence[int], moving: Moving | None
) -> str:
    """Return the status line of one partition, in the words of Kafka's tool."""
    name = f"{key[0]}-{key[1]}"
    if moving is not None:
        return f"Reassignment of partition {name} is still in progress."
    if list(wanted) == list(current):
        return f"Reassignment of partition {name} is completed."
    return (
        f"There is no active reassignment of partition {name}, but replica set is "
        f"{_ids(current)} rather than {_ids(wanted)}."
    )


async def _cancel(client: ClusterClient, options: argparse.Namespace) -> None:
    wanted = read_assignment(options.reassignment_json_file)
    admin = Admin(client)
    going_on = [(m.topic, m.partition) for m in await moves(admin, list(wanted))]
    if not going_on:
        say("None of the specified partition reassignments are active.")
        return
    await admin.reassign_all(dict.fromkeys(going_on))
    plural = "s" if len(going_on) > 1 else ""
    say(f"Successfully cancelled partition reassignment{plural} for: {_names(going_on)}")


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    found = await moves(Admin(client), ())
    if not found:
        say("No partition reassignments found.")
        return
    say("Current partition reassignments:")
    for one in sorted(found):
        adding = f" adding: {_ids(one.adding)}." if one.adding else ""
        removing = f" removing: {_ids(one.removing)}." if one.removing else ""
        say(f"{one.topic}-{one.partition}: replicas: {_ids(one.replicas)}.{adding}{removing}")


def _names(keys: Sequence[TopicPartition] | Assignment) -> str:
    return ",".join(f"{topic}-{index}" for topic, index in sorted(keys))


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


ACTIONS = {
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "cancel": _cancel,
    "list": _list,
}
