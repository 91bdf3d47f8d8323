"""The records of the cluster metadata log: classes, and their registry by record type."""

from __future__ import annotations

from protocol.errors import ProtocolError
from protocol.metadata.abort_transaction_record import AbortTransactionRecord
from protocol.metadata.access_control_entry_record import AccessControlEntryRecord
from protocol.metadata.begin_transaction_record import BeginTransactionRecord
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.clear_elr_record import ClearElrRecord
from protocol.metadata.client_quota_record import ClientQuotaRecord
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.delegation_token_record import DelegationTokenRecord
from protocol.metadata.end_transaction_record import EndTransactionRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.fence_broker_record import FenceBrokerRecord
from protocol.metadata.no_op_record import NoOpRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.producer_ids_record import ProducerIdsRecord
from protocol.metadata.register_broker_record import RegisterBrokerRecord
from protocol.metadata.register_controller_record import RegisterControllerRecord
from protocol.metadata.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from protocol.metadata.remove_delegation_token_record import RemoveDelegationTokenRecord
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from protocol.metadata.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.metadata.unfence_broker_record import UnfenceBrokerRecord
from protocol.metadata.unregister_broker_record import UnregisterBrokerRecord
from protocol.metadata.unregister_controller_record import UnregisterControllerRecord
from protocol.metadata.user_scram_credential_record import UserScramCredentialRecord
from protocol.metadata.zk_migration_state_record import ZkMigrationStateRecord
from protocol.record_frame import decode_framed, encode_framed
from protocol.schema import Buffer, MetadataRecord

RECORD_CLASSES: dict[int, type[MetadataRecord]] = {
    cls.RECORD_TYPE: cls
    for cls in (
        AbortTransactionRecord,
        AccessControlEntryRecord,
        BeginTransactionRecord,
        BrokerRegistrationChangeRecord,
        ClearElrRecord,
        ClientQuotaRecord,
        ConfigRecord,
        DelegationTokenRecord,
        EndTransactionRecord,
        FeatureLevelRecord,
        FenceBrokerRecord,
        NoOpRecord,
        PartitionChangeRecord,
        PartitionRecord,
        ProducerIdsRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        RemoveAccessControlEntryRecord,
        RemoveDelegationTokenRecord,
        RemoveTopicRecord,
        RemoveUserScramCredentialRecord,
        TopicRecord,
        UnfenceBrokerRecord,
        UnregisterBrokerRecord,
        UnregisterControllerRecord,
        UserScramCredentialRecord,
        ZkMigrationStateRecord,
    )
}


def record_class(record_type: int) -> type[MetadataRecord]:
    """Return the class of a record type. Raises ProtocolError for an unknown number."""
    cls = RECORD_CLASSES.get(record_type)
    if cls is None:
        raise ProtocolError("metadata record type", record_type, str(sorted(RECORD_CLASSES)))
    return cls


def encode_record(record: MetadataRecord, version: int) -> bytes:
    """Encode a record in KRaft's frame. Raises EncodeError if `version` cannot represent its
    values."""
    return encode_framed(record, version)


def decode_record(value: Buffer) -> tuple[MetadataRecord, int]:
    """Decode a record in KRaft's frame. Returns it and its version.

    Raises ProtocolError for an unknown frame version, record type or version, for broken bytes and
    for remaining bytes.
    """
    return decode_framed(value, record_class)


__all__ = [
    "RECORD_CLASSES",
    "MetadataRecord",
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UnregisterControllerRecord",
    "UserScramCredentialRecord",
    "ZkMigrationStateRecord",
    "decode_record",
    "encode_record",
    "record_class",
]
