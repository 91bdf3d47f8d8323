"""Kafka's error codes, and the exceptions of this package.

`ApiError` is an error response to a client: a code of the protocol and a message. `ProtocolError`
means malformed bytes: no response is possible, and the connection is closed. `EncodeError` is a
programming error: a message that its version cannot represent.

The texts are for clients if a handler has no more exact message.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """Every error code of Kafka 4.4, and Kraftbox's own from 10000 on.

    Kafka assigned no number to REQUEST_LIMIT_REACHED (KIP-966). It is used only in versions that
    Kraftbox's own nodes and tools exchange.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136
    REQUEST_LIMIT_REACHED = 10000

    @classmethod
    def _missing_(cls, value: object) -> ErrorCode | None:
        """Map a code of a newer node to UNKNOWN_SERVER_ERROR."""
        return cls.UNKNOWN_SERVER_ERROR if isinstance(value, int) else None

    @property
    def retriable(self) -> bool:
        """True if Kafka's clients retry the same request."""
        return self in RETRIABLE

    @property
    def text(self) -> str:
        """The default message for users."""
        return _TEXTS[self]


RETRIABLE: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.REQUEST_LIMIT_REACHED,
    }
)

_TEXTS: dict[int, str] = {
    -1: "The server failed for a reason without an error code of its own.",
    0: "No error.",
    1: "The log has no record at this offset: it is below the log's start or beyond its end.",
    2: "The record batch is corrupt: checksum, size or structure do not match.",
    3: "This broker does not host the topic or partition.",
    4: "The fetch size is not valid.",
    5: "The partition has no leader at the moment; an election may be under way.",
    6: "This broker is not the leader (or not a replica) of the partition.",
    7: "The request timed out.",
    8: "The broker is not available.",
    9: "The replica is not available on this broker.",
    10: "The record batch is larger than the topic allows.",
    11: "The request contains an epoch of an earlier controller.",
    12: "The metadata string of an offset commit is longer than the broker allows.",
    13: "The connection was lost before the response arrived.",
    14: "The coordinator is still loading its state from the log.",
    15: "There is no coordinator for this group or transaction at the moment.",
    16: "This broker is not the coordinator for the group or transaction.",
    17: "The topic name is not valid, or the topic may not be used this way.",
    18: "The record batch is larger than a whole log segment may be.",
    19: "Fewer replicas are in sync than min.insync.replicas requires; no record was written.",
    20: (
        "The records were written, but fewer replicas have them than min.insync.replicas requires."
    ),
    21: "acks must be -1 (all), 0 or 1.",
    22: "The generation is not the group's current one.",
    23: "The member shares no protocol with the other members of the group, or lists none.",
    24: "The group id is not valid.",
    25: "The coordinator does not know this member id in the group.",
    26: "The session timeout lies outside group.min.session.timeout.ms and "
    "group.max.session.timeout.ms.",
    27: "The group is rebalancing; join again.",
    28: "The offset commit does not fit into a record of the offsets topic.",
    29: "Not authorized for this topic.",
    30: "Not authorized for this group.",
    31: "Not authorized for this operation on the cluster.",
    32: "The record's timestamp lies further from the broker's clock than the topic allows.",
    33: "The listener does not offer this SASL mechanism.",
    34: "The request is not allowed in this state of the SASL exchange.",
    35: "This version of the API is not supported.",
    36: "A topic with this name exists already.",
    37: "The number of partitions is not valid.",
    38: "The replication factor is below 1 or above the number of usable brokers.",
    39: "The replica assignment is not valid.",
    40: "The configuration is not valid.",
    41: "This node is not the active controller.",
    42: "The request contradicts itself or the API's rules.",
    43: "The record format in use does not support this request.",
    44: "A policy of this cluster forbids the request.",
    45: "The batch's first sequence number does not follow the producer's last one.",
    46: "The batch repeats a sequence number that was written before.",
    47: "The producer has a newer epoch.",
    48: "The transaction is in a state that does not allow this.",
    49: "The producer id does not belong to this transactional id.",
    50: "The transaction timeout is above transaction.max.timeout.ms.",
    51: "Another operation on this transaction is still under way.",
    52: "The producer has a newer transaction coordinator.",
    53: "Not authorized for this transactional id.",
    54: "No authorizer is configured, so there are no access rules to show or change.",
    55: "Not attempted, because another operation of the same request failed.",
    56: "A log directory failed with a disk error.",
    57: "The broker has no such log directory.",
    58: "SASL authentication failed.",
    59: "The broker has no state for this producer id.",
    60: "The partition's replicas are already being moved.",
    61: "Delegation tokens are not enabled.",
    62: "There is no such delegation token.",
    63: "The principal is neither owner nor renewer of the delegation token.",
    64: "Delegation tokens cannot be requested over this kind of connection.",
    65: "Not authorized for this delegation token.",
    66: "The delegation token has expired.",
    67: "This type of principal is not supported.",
    68: "The group still has members.",
    69: "There is no such group.",
    70: "The broker has no fetch session with this id.",
    71: "The fetch session has another epoch.",
    72: "The leader has no listener with the name of the listener that received this request.",
    73: "Deleting topics is switched off (delete.topic.enable=false).",
    74: "The leader epoch in the request is older than the broker's.",
    75: "The leader epoch in the request is newer than the broker's.",
    76: "The partition uses a compression type that this version of the request cannot carry.",
    77: "The broker epoch is not the epoch of the broker's current registration.",
    78: "A leader was just elected and does not know the high watermark yet.",
    79: "Join again with the member id in this answer.",
    80: "The preferred replica is not available, so it cannot become leader.",
    81: "The group has as many members as group.max.size allows.",
    82: "Another member uses this group.instance.id.",
    83: "No replica may become leader of the partition.",
    84: "The partition already has the leader this election would choose.",
    85: "The partition's replicas are not being moved.",
    86: "The group is subscribed to the topic, so its offsets cannot be deleted.",
    87: "A record in the batch violates the broker's rules.",
    88: "Offsets of an open transaction are pending; retry later.",
    89: "A quota was exceeded; retry after the throttle time.",
    90: "A newer producer with this transactional id took over.",
    91: "The request names a resource that does not exist.",
    92: "The request names a resource twice.",
    93: "The credential is not valid.",
    94: "The voter sets of sender and receiver differ.",
    95: "The feature level is not valid.",
    96: "The feature levels could not be changed.",
    97: "The principal inside a forwarded request could not be read.",
    98: "There is no such snapshot.",
    99: "The position is not inside the snapshot.",
    100: "This broker does not know a topic with this id.",
    101: "Another broker is registered with this id.",
    102: "No broker is registered with this id.",
    103: "The topic id differs from the one in the log.",
    104: "The cluster id differs from this cluster's.",
    105: "There is no such transactional id.",
    106: "The fetch session mixes topic names and topic ids.",
    107: "The proposed in-sync set has a replica that may not join it.",
    108: "The partition changed and has a new leader.",
    109: "The offset is no longer on the broker's disk but in tiered storage.",
    110: "The member's epoch is no longer valid; it must revoke its partitions and join again.",
    111: "Another member has not yet released this instance id.",
    112: "The group does not support this assignor or its version.",
    113: "The member's epoch is behind; heartbeat again before retrying.",
    114: "The request was sent to the wrong kind of endpoint (broker or controller).",
    115: "This kind of endpoint is not supported.",
    116: "No controller has this id.",
    117: "The telemetry subscription id is unknown or out of date.",
    118: "The telemetry is larger than the broker accepts.",
    119: "The controller rejected this registration.",
    120: "The transaction cannot continue; abort it and start another.",
    121: "The record is in a state that does not allow this acknowledgement.",
    122: "The broker has no share session with this id.",
    123: "The share session has another epoch.",
    124: "The share group's state has another epoch.",
    125: "The voter's id or directory differs from the receiving node's.",
    126: "This node is already a voter.",
    127: "This node is not a voter.",
    128: "The regular expression is not valid.",
    129: "The client's metadata is outdated; start again from bootstrap.servers.",
    130: "The streams topology is not valid.",
    131: "The streams topology epoch is not valid.",
    132: "The streams topology is older than the current one.",
    133: "The broker's limit of share sessions is reached.",
    134: "The group could not be deleted.",
    135: "The description of the streams topology could not be stored.",
    136: "No controller with this id is registered.",
    10000: "The request has too many partitions; request the others separately.",
}


class ApiError(Exception):
    """An error with a protocol code, for the response to a client.

    Without a `message`, the code's own text is used.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    @property
    def text(self) -> str:
        """The message for users: `message`, or else the code's own text."""
        return self.code.text if self.message is None else self.message

    def as_value(self) -> ApiError:
        """Return this error without its frames, to be kept as one answer of many.

        Frames refer to the collection that the error goes into: a cycle, which the garbage
        collector freezes when it survives one full collection (`runtime/collector.py`).
        """
        self.__context__ = None
        return self.with_traceback(None)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.text}"


class ProtocolError(Exception):
    """Bytes that break the protocol.

    Arguments: the item read, the value found, and the allowed values; or a single complete
    sentence.
    """

    def __init__(self, what: str, value: object = None, allowed: str | None = None) -> None:
        super().__init__(what, value, allowed)
        self.what = what
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        if self.allowed is None:
            return self.what if self.value is None else f"{self.what}: {self.value!r}"
        return f"{self.what}: {self.value!r} (allowed: {self.allowed})"


class EncodeError(ValueError):
    """A message that cannot be encoded: a value out of range, or one its version cannot
    represent."""

    def __init__(self, what: str, value: object, allowed: str) -> None:
        super().__init__(what, value, allowed)
        self.what = what
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.what}: {self.value!r} (allowed: {self.allowed})"
