"""Requested leader elections: their types, their results, and the splitting of long lists.

Brokers limit the number of elections per request (KIP-966). So a long list is split, and partitions
beyond a broker's limit are requested again.
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
"""Maximum partitions per request, in all versions."""
OWN_VERSION = 3
"""The first version with the types that Kafka does not have (KIP-966)."""


class ElectionType(IntEnum):
    """Types of elections.

    - PREFERRED: the first replica, if it is in sync.
    - UNCLEAN: any live replica, if the partition has no other leader. Records that it lacks are
      lost (KIP-460).

    The others are for partitions without leader (KIP-966):
    - LONGEST_LOG_AGGRESSIVE: the longest log among the live replicas.
    - LONGEST_LOG_BALANCED: the longest log, once all replicas are back that may have every record.
    - DESIGNATION: the named broker, whatever its log contains.
    """

    PREFERRED = 0
    UNCLEAN = 1
    LONGEST_LOG_AGGRESSIVE = 2
    LONGEST_LOG_BALANCED = 3
    DESIGNATION = 4

    @property
    def version(self) -> int | None:
        """The version of ElectLeaders that has the type; None for any."""
        return OWN_VERSION if self > ElectionType.UNCLEAN else None


class ElectionResult(NamedTuple):
    """The result of one election.

    ELECTION_NOT_NEEDED: the partition already has the requested leader.

    `number` is the received code; `error` is UNKNOWN_SERVER_ERROR if Kafka has no such code.
    """

    number: int
    message: str | None = None

    @property
    def error(self) -> ErrorCode:
        known = self.number in ErrorCode._value2member_map_
        return ErrorCode(self.number) if known else ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def failed(self) -> bool:
        """True if the partition does not have the requested leader."""
        return self.number not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)

    @property
    def reason(self) -> str:
        """The name of the error and its message."""
        return Refused("", self.number, self.message).reason


class ElectionRequests:
    """The requests of one election in many partitions.

    Send `request` and pass the response to `take`, until `request` is None. `results` are in the
    order of the responses. `leaders` are the brokers of a designation.
    """

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
        """Return the next request; None once every partition has a result."""
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
        """Add a response; raise Refused if it refuses the whole request.

        A partition that the response omits has failed. Partitions over the broker's limit are
        requested again, unless the broker served none of the request; then they have failed.
        """
        received = _results(answer)
        if answer.error_code and not received:
            raise Refused("election", answer.error_code)
        page, later = self._waiting[:PARTITIONS_MAX], self._waiting[PARTITIONS_MAX:]
        results = {partition: received.get(partition, _NO_RESULT) for partition in page}
        over = [one for one, result in results.items() if result.number == OVER_THE_LIMIT]
        again = [] if len(over) == len(page) else over
        self._waiting = [*again, *later]
        for partition in again:
            del results[partition]
        self.results.update(results)


OVER_THE_LIMIT = ErrorCode.REQUEST_LIMIT_REACHED
_NO_RESULT = ElectionResult(
    ErrorCode.UNKNOWN_SERVER_ERROR, "the response has no result for this partition"
)


def _results(answer: ElectLeadersResponse) -> Mapping[TopicPartition, ElectionResult]:
    return {
        (topic.topic, one.partition_id): ElectionResult(one.error_code, one.error_message)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }
