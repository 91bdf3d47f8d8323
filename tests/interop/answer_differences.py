"""Allowed differences between our answers and Kafka's, with the words of docs/gaps.md about
them."""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.api_keys import ApiKey

SAYS_MORE: Final = "give a reason where Kafka's have none"

_TIMES: Final = "Repeated entries and empty lists of a request"
_UNKNOWN: Final = "Answered here, UNKNOWN_SERVER_ERROR (or nothing) in Kafka"
_CODES: Final = "Error codes"
_REFUSED: Final = "Refused here, accepted by Kafka"
_FORM: Final = "The form of a few answers"


class Allowed(NamedTuple):
    """Differences below the fields in `paths` in the answers to these requests."""

    api: ApiKey
    requests: tuple[str, ...]
    paths: tuple[str, ...]
    gap: str

    def covers(self, label: str, path: str) -> bool:
        """Return whether this difference is allowed. An empty path covers all of the answer."""
        return label in self.requests and any(
            not below or path == below or path.startswith(f"{below}.") for below in self.paths
        )


ALLOWED: Final = (
    Allowed(
        ApiKey.PRODUCE,
        ("a short batch", "rubbish"),
        ("responses.partition_responses",),
        _CODES,
    ),
    Allowed(
        ApiKey.PRODUCE,
        ("a transactional id",),
        ("responses.partition_responses",),
        "a Produce with a transactional id",
    ),
    Allowed(
        ApiKey.FETCH,
        ("an unknown partition", "a negative partition", "an unknown topic", "an invalid topic"),
        ("responses.partitions.aborted_transactions",),
        _FORM,
    ),
    Allowed(
        ApiKey.FETCH,
        ("negative bytes", "no isolation level"),
        ("responses", "error_code"),
        _UNKNOWN,
    ),
    Allowed(ApiKey.FETCH, ("an epoch of -2",), ("responses", "node_endpoints"), _CODES),
    Allowed(
        ApiKey.LIST_OFFSETS,
        ("no partitions", "a partition twice", "a topic twice"),
        ("topics",),
        _TIMES,
    ),
    Allowed(
        ApiKey.LIST_OFFSETS, ("isolation level 2", "isolation level -1"), ("topics",), _UNKNOWN
    ),
    Allowed(
        ApiKey.METADATA,
        ("a topic by id", "an unknown id", "id and name", "id and another name", "an id twice")
        + ("authorized operations of an unknown id",),
        ("brokers", "controller_id"),
        _FORM,
    ),
    Allowed(ApiKey.METADATA, ("an id twice",), ("topics",), _TIMES),
    Allowed(ApiKey.DESCRIBE_CONFIGS, ("loggers",), ("results.configs.documentation",), _FORM),
    *(
        one
        for api in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        for one in (
            Allowed(api, ("an empty key of a broker",), ("responses",), _REFUSED),
            Allowed(api, ("kind 77", "kind 0"), ("responses.error_code",), _CODES),
            Allowed(
                api,
                ("null", "a key that is read only"),
                ("responses.error_code",),
                "A broker key or a null set through a controller",
            ),
        )
    ),
    Allowed(ApiKey.OFFSET_DELETE, ("no partitions",), ("topics",), _TIMES),
    Allowed(
        ApiKey.FIND_COORDINATOR,
        ("share partitions",),
        ("coordinators.error_code",),
        "share groups, streams groups",
    ),
    Allowed(
        ApiKey.DELETE_RECORDS,
        ("no partitions", "a partition twice", "a topic twice"),
        ("topics",),
        _TIMES,
    ),
    Allowed(ApiKey.DESCRIBE_TOPIC_PARTITIONS, ("an empty topic",), ("topics",), _UNKNOWN),
    Allowed(ApiKey.ELECT_LEADERS, ("all",), ("replica_election_results",), _TIMES),
    Allowed(ApiKey.UPDATE_FEATURES, ("twice",), ("",), "a feature or a configuration given twice"),
    Allowed(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ("no password",), ("results.error_code",), _UNKNOWN
    ),
    Allowed(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ("both",), ("results.error_code",), _CODES),
)
