"""kafka-leader-election.sh: elect preferred leaders, or leaders of leaderless partitions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from client.admin import Admin
from client.cluster_client import ClusterClient
from client.elections import ElectionType
from client.leaders import TopicPartition
from kraftbox.cli.connect import run
from kraftbox.cli.election_file import DesiredLeaders, leaders_of, read_election_file
from kraftbox.cli.output import CommandFailed, say
from kraftbox.kafka_tools.options import bootstrap_of, parser
from protocol.errors import ErrorCode

TYPES = {
    "preferred": ElectionType.PREFERRED,
    "unclean": ElectionType.UNCLEAN,
    # This is the spelling in KIP-966.
    "longest_log_agressive": ElectionType.LONGEST_LOG_AGGRESSIVE,
    "longest_log_aggressive": ElectionType.LONGEST_LOG_AGGRESSIVE,
    "longest_log_balanced": ElectionType.LONGEST_LOG_BALANCED,
    "designation": ElectionType.DESIGNATION,
}


def main(name: str, arguments: Sequence[str]) -> int:
    options = parser(name, __doc__ or "")
    options.add_argument("--bootstrap-server", required=True)
    options.add_argument("--admin.config", "--command-config", dest="command_config")
    options.add_argument("--election-type", required=True, type=str.lower, choices=sorted(TYPES))
    options.add_argument("--topic")
    options.add_argument("--partition", type=int)
    options.add_argument("--path-to-json-file", metavar="FILE")
    options.add_argument("--all-topic-partitions", action="store_true")
    given = options.parse_args(arguments)
    wanted = partitions_of(given)
    leaders = leaders_of(TYPES[given.election_type], wanted)
    failed = run(bootstrap_of(given), lambda client: _elect(client, given, wanted, leaders))
    return 1 if failed else 0


def partitions_of(options: argparse.Namespace) -> DesiredLeaders | None:
    """Return the partitions of the options, None for all of them. Raises CommandFailed."""
    if (options.topic is None) != (options.partition is None):
        raise CommandFailed("--topic and --partition belong together")
    ways = (
        options.all_topic_partitions,
        options.path_to_json_file is not None,
        options.topic is not None,
    )
    if sum(ways) != 1:
        raise CommandFailed(
            "give one of --all-topic-partitions, --path-to-json-file, or --topic with --partition"
        )
    if options.path_to_json_file is not None:
        return read_election_file(Path(options.path_to_json_file))
    if TYPES[options.election_type] is ElectionType.DESIGNATION:
        raise CommandFailed("a designation needs --path-to-json-file, with a desiredLeader each")
    if options.all_topic_partitions:
        return None
    return {(options.topic, options.partition): None}


async def _elect(
    client: ClusterClient,
    options: argparse.Namespace,
    wanted: DesiredLeaders | None,
    leaders: Mapping[TopicPartition, int],
) -> bool:
    """Elect leaders and print the results; return whether an election failed."""
    kind = options.election_type
    done, had, failed = [], [], []
    results = await Admin(client).elect_leaders(TYPES[kind], wanted, leaders)
    for (topic, index), result in results.items():
        name = f"{topic}-{index}"
        if result.number == ErrorCode.NONE:
            done.append(name)
        elif result.number == ErrorCode.ELECTION_NOT_NEEDED:
            had.append(name)
        else:
            failed.append(f"{name}: {result.reason}")
    if done:
        say(
            f"Successfully completed leader election ({kind.upper()}) for partitions "
            f"{', '.join(done)}"
        )
    if had:
        say(f"Valid replica already elected for partitions {', '.join(had)}")
    for line in failed:
        say(f"Error completing leader election ({kind.upper()}) for partition: {line}")
    return bool(failed)
