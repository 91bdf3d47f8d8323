"""Elections that are asked for: their types, what becomes of each, and how a long list is asked.

Brokers elect in a limited number of partitions per request (KIP-966), so a long list is split, and
what a broker put over its limit is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from client.errors import Refused
from client.leaders import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import (
    PARTITIONS_PER_REQUEST_MAX,
    ElectLeadersRequest,
    ElectLeadersResponse,
)

PARTITIONS_MAX = PARTITIONS_PER_REQUEST_MAX
"""Partitions in one request, in all versions."""
OWN_VERSION = 3
"""The first version with the types that Kafka does not have (KIP-966)."""


class ElectionType(IntEnum):
    """PREFERRED: the first replica, if it is in sync. UNCLEAN: any, where no other is left; what
    only others had is lost (KIP-460).

    The others are for partitions without leader (KIP-966). LONGEST_LOG_AGGRESSIVE: whoever has most
    of those that are alive. LONGEST_LOG_BALANCED: whoever has most, once all that may have
    everything are back. DESIGNATION: the broker that is named, whatever it has.
    """

    PREFERRED = 0
    UNCLEAN = 1
    LONGEST_LOG_AGGRESSIVE = 2
    LONGEST_LOG_BALANCED = 3
    DESIGNATION = 4

    @property
    def version(self) -> int | None:
        """The version of ElectLeaders that has it; None: any."""
        return OWN_VERSION if self > ElectionType.UNCLEAN else None


class ElectionResult(NamedTuple):
    """What became of one partition. ELECTION_NOT_NEEDED: it has the leader that was asked for.

    `number` is the code as it came, `error` UNKNOWN_SERVER_ERROR if it is none of Kafka's.
    """

    number: int
    message: str | None = None

    @property
    def error(self) -> ErrorCode:
        known = self.number in ErrorCode._value2member_map_
        return ErrorCode(self.number) if known else ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def failed(self) -> bool:
        """Whether there is not the leader that was asked for."""
        return self.number not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)

    @property
    def reason(self) -> str:
        """The error and a sentence."""
        return Refused("", self.number, self.message).reason


class ElectionRequests:
    """The requests for one election in these partitions. Ask `request`, hand over the answer with
    `take`, until `request` is None. `results` are in the order of the answers. `leaders` are the
    brokers that a designation names."""

    def __init__(
        self,
        kind: ElectionType,
        partitions: Iterable[TopicPartition],
        leaders: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.results: dict[TopicPartition, ElectionResult] = {}
        self._kind = kind
        self._waiting = list(dict.fromkeys(partitions))
        self._leaders = leaders or {}

    def request(self, timeout_ms: float) -> ElectLeadersRequest | None:
        """What to ask now; None when every partition has a result."""
        if not self._waiting:
            return None
        by_topic: dict[str, list[int]] = {}
        for topic, index in self._waiting[:PARTITIONS_MAX]:
            by_topic.setdefault(topic, []).append(index)
        designates = self._kind is ElectionType.DESIGNATION
        return ElectLeadersRequest(
            election_type=self._kind,
            topic_partitions=[
                ElectLeadersRequest.TopicPartitions(
                    topic=topic,
                    partitions=indexes,
                    desired_leaders=[self._leaders.get((topic, one), -1) for one in indexes]
                    if designates
                    else None,
                )
                for topic, indexes in by_topic.items()
            ],
            timeout_ms=int(timeout_ms),
        )

    def take(self, answer: ElectLeadersResponse) -> None:
        """Add an answer. A partition that it leaves out failed, and so did those that are over the
        limit of a broker that has served none. Raises Refused for a whole request that was
        refused."""
        told = _results(answer)
        if answer.error_code and not told:
            raise Refused("election", answer.error_code)
        asked, later = self._waiting[:PARTITIONS_MAX], self._waiting[PARTITIONS_MAX:]
        results = {partition: told.get(partition, _UNTOLD) for partition in asked}
        over = [one for one, result in results.items() if result.number == OVER_THE_LIMIT]
        again = [] if len(over) == len(asked) else over
        self._waiting = [*again, *later]
        for partition in again:
            del results[partition]
        self.results.update(results)


OVER_THE_LIMIT = ErrorCode.REQUEST_LIMIT_REACHED
_UNTOLD = ElectionResult(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer leaves it out")


def _results(answer: ElectLeadersResponse) -> Mapping[TopicPartition, ElectionResult]:
    return {
        (topic.topic, one.partition_id): ElectionResult(one.error_code, one.error_message)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }
