import pytest

from runtime.config import (
    ConfigError,
    NodeConfig,
    keys_group_coordinator,
    keys_log,
    keys_server,
    keys_topic,
    topic_defaults,
)
from runtime.config.tables import NODE_KEYS, TOPIC_KEYS

BROKER = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "2@localhost:9093",
}
COMBINED = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
}


def broken_keys(props: dict[str, str]) -> list[str]:
    """Return the keys that the error of a refused configuration names; empty if it is accepted."""
    try:
        NodeConfig.parse(props)
    except ConfigError as error:
        return [error.key, *(other.key for other in error.others)]
    return []


def test_kafkas_defaults():
    config = NodeConfig.parse(BROKER)
    assert config[keys_server.NUM_PARTITIONS] == 1
    assert config[keys_group_coordinator.OFFSETS_TOPIC_REPLICATION_FACTOR] == 3
    assert config[keys_log.LOG_SEGMENT_BYTES] == 1 << 30
    assert config.log_dir == "/tmp/kafka-logs"
    assert [listener.name for listener in config.broker_listeners] == ["PLAINTEXT"]


def test_roles_and_listeners():
    config = NodeConfig.parse(COMBINED, hostname="here")
    assert config.is_broker and config.is_controller
    assert [e.port for e in config.controller_listeners] == [9093]
    assert config.advertised_listeners == (("PLAINTEXT", "here", 9092, "PLAINTEXT"),)
    assert config.advertised_controller_listeners == (("CONTROLLER", "here", 9093, "PLAINTEXT"),)
    assert config.quorum_voters == ((1, "localhost", 9093),)


def test_all_problems_are_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        NodeConfig.parse({"num.partitions": "0", "log.cleaner.enable": "yes"})
    text = str(caught.value)
    assert "num.partitions=0: must be an integer of at least 1" in text
    assert "log.cleaner.enable=yes: must be true or false" in text
    assert "node.id is missing" in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.partitions", "1_000"),
        ("num.partitions", "2147483648"),
        ("num.partitions", "1.0"),
        ("num.partitions", ""),
        ("log.cleaner.min.cleanable.ratio", "nan"),
        ("log.cleaner.min.cleanable.ratio", "1.01"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("log.cleanup.policy", "delete,,compact"),
        ("log.cleanup.policy", "drop"),
        ("log.dirs", ""),
        ("log.dirs", "/a,/b"),
        ("listeners", "PLAINTEXT:9092"),
        ("listeners", "PLAINTEXT://:99999"),
        ("listeners", "PLAINTEXT://:1,SSL://:1"),
        ("listeners", "FOO://:9092"),
        ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092"),
        ("advertised.listeners", "SSL://h:9092"),
        ("inter.broker.listener.name", "CONTROLLER"),
        ("controller.quorum.voters", "1@localhost:9093"),
        ("controller.quorum.voters", "2@localhost"),
        ("controller.quorum.voters", "2@a:1,2@b:1"),
        ("broker.id", "7"),
        ("log.retention.ms", "0"),
        ("log.roll.ms", "0"),
        ("replica.fetch.wait.max.ms", "40000"),
        ("queued.max.request.bytes", "5"),
        ("max.connections.per.ip", "0"),
        ("max.connections.per.ip.overrides", "127.0.0.1#1"),
        ("group.consumer.heartbeat.interval.ms", "50000"),
        ("group.coordinator.rebalance.protocols", "consumer"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("eligible.leader.replicas.enabled", "true"),
        ("eligible.leader.replicas.enabled", "false"),
        ("early.start.listeners", "FOO"),
        ("kraftbox.fault.files", "broken"),
        ("kraftbox.http.listener", "9404"),
    ],
)
def test_bad_values_are_refused(key, value):
    assert broken_keys({**BROKER, key: value})


LOWER = "PLAINTEXT://:9092,controller://:9093"


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"controller.listener.names": "controller"}, "controller.listener.names"),
        (
            {"controller.listener.names": "controller", "listeners": LOWER},
            "controller.listener.names",
        ),
        (
            {
                "controller.listener.names": "controller",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            },
            "controller.listener.names",
        ),
        ({"controller.listener.names": "CONTROLLER,controller"}, "controller.listener.names"),
        ({"controller.listener.names": "CONTROLLER,OTHER"}, "controller.listener.names"),
        ({"early.start.listeners": "controller"}, "early.start.listeners"),
        ({"listeners": LOWER}, None),
        ({"listeners": "plaintext://:9092,CONTROLLER://:9093"}, None),
        ({"advertised.listeners": "plaintext://h:9092"}, None),
        ({"inter.broker.listener.name": "plaintext"}, None),
        ({"listener.security.protocol.map": "plaintext:plaintext,controller:plaintext"}, None),
    ],
)
def test_listener_names_are_compared_as_in_kafka(changes, refused):
    """Kafka 4.3.1 converts listener names to upper case, and leaves these two keys as they are."""
    assert broken_keys({**COMBINED, **changes}) == ([] if refused is None else [refused])


def test_the_key_of_the_proposal_for_eligible_leader_replicas_names_the_feature():
    with pytest.raises(ConfigError, match=r"eligible\.leader\.replicas\.version=1"):
        NodeConfig.parse({**BROKER, "eligible.leader.replicas.enabled": "true"})


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_tls_and_sasl_listeners_are_refused_with_the_reason(protocol):
    props = {
        **COMBINED,
        "listeners": "SECURE://:9092,CONTROLLER://:9093",
        "listener.security.protocol.map": f"SECURE:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SECURE",
    }
    with pytest.raises(ConfigError, match="not TLS and SASL"):
        NodeConfig.parse(props)


def test_a_controller_needs_only_its_own_listeners():
    controller = {
        **COMBINED,
        "process.roles": "controller",
        "listeners": "CONTROLLER://:9093",
        "advertised.listeners": "CONTROLLER://public:19093",
    }
    config = NodeConfig.parse(controller)
    assert config.broker_listeners == ()
    assert config.advertised_controller_listeners[0].host == "public"
    assert "listeners" in broken_keys({**controller, "listeners": COMBINED["listeners"]})


def test_one_port_for_both_address_families():
    listeners = "PLAINTEXT://127.0.0.1:9092,INNER://[::1]:9092"
    props = {
        **BROKER,
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
    }
    assert broken_keys(props) == []
    assert broken_keys({**props, "listeners": listeners.replace("[::1]", "127.0.0.2")})


def test_repeated_list_entries_count_once():
    config = NodeConfig.parse({**BROKER, "process.roles": "broker, broker", "log.dirs": "/a,/a"})
    assert config.log_dir == "/a"
    assert config.process_roles == {"broker"}


def test_time_units_by_precedence():
    config = NodeConfig.parse(
        {
            **BROKER,
            "log.retention.hours": "1",
            "log.retention.minutes": "3",
            "log.roll.hours": "2",
            "log.roll.ms": "5",
        }
    )
    defaults = topic_defaults(config)
    assert defaults[keys_topic.RETENTION_MS] == 180_000
    assert defaults[keys_topic.SEGMENT_MS] == 5
    assert defaults[keys_topic.SEGMENT_JITTER_MS] == 0
    forever = NodeConfig.parse({**BROKER, "log.retention.minutes": "-5"})
    assert topic_defaults(forever)[keys_topic.RETENTION_MS] == -1


def test_unknown_keys_warn():
    config = NodeConfig.parse({**BROKER, "zookeeper.connect": "x", "rsm.config.bucket": "b"})
    assert len(config.warnings) == 1
    assert "zookeeper.connect" in config.warnings[0]


def test_a_heartbeat_close_to_the_session_warns():
    config = NodeConfig.parse({**BROKER, "broker.heartbeat.interval.ms": "5000"})
    assert "broker.session.timeout.ms" in config.warnings[0]


def test_dynamic_changes_are_checked_like_static_ones():
    config = NodeConfig.parse(BROKER)
    assert config.overlaid({"num.io.threads": "4"})[keys_server.NUM_IO_THREADS] == 4
    with pytest.raises(ConfigError):
        config.overlaid({"num.io.threads": "0"})


def test_tables_hold_every_key_once_with_a_valid_default():
    # Kafka has 379 and 38; those of unclean recovery and of local logs are in no release of it.
    assert len([key for key in NODE_KEYS if not key.startswith("kraftbox.")]) == 379 + 3 + 2
    assert len(TOPIC_KEYS) == 38 + 1 + 2
    for key in [*NODE_KEYS.values(), *TOPIC_KEYS.values()]:
        if not key.required and key.default is not None:
            key.check(key.default)
            assert key.parse(key.format(key.default)) == key.default
        for synonym, _factor in key.synonyms:
            assert NODE_KEYS[synonym.name] is synonym


def test_replica_lag_max_messages_is_refused_with_replacement() -> None:
    with pytest.raises(ConfigError, match=r"replica\.lag\.time\.max\.ms"):
        NodeConfig.parse({**BROKER, "replica.lag.max.messages": "4000"})


def test_replica_selectors_that_cannot_run_here_are_refused() -> None:
    known = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    assert NodeConfig.parse({**BROKER, "replica.selector.class": known})
    with pytest.raises(ConfigError, match="RackAwareReplicaSelector"):
        NodeConfig.parse({**BROKER, "replica.selector.class": "my.Selector"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("num.partitons", "; did you mean num.partitions?"),
        ("retention.ms", "; it is a key of topics; the key of nodes is log.retention.ms"),
        ("completely.else", ""),
    ],
)
def test_unknown_key_warning_suggests_similar_key(name: str, hint: str) -> None:
    (warning,) = NodeConfig.parse({**BROKER, name: "1"}).warnings
    assert warning == f"{name} is not a known configuration key and has no effect{hint}"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("num.network.threads", "9", "one event loop does the work of these threads"),
        ("ssl.keystore.location", "/x", "TLS and SASL are not supported"),
        ("sasl.enabled.mechanisms", "PLAIN", "TLS and SASL are not supported"),
        ("log.preallocate", "true", "there is no buffer of this kind"),
    ],
)
def test_known_key_without_effect_is_reported_with_its_reason(
    name: str, value: str, reason: str
) -> None:
    """README: a setting without effect is reported at the start."""
    assert NodeConfig.parse({**BROKER, name: value}).warnings == [f"{name} has no effect: {reason}"]


def test_key_without_effect_at_its_default_is_not_reported() -> None:
    assert NodeConfig.parse({**BROKER, "num.network.threads": "3"}).warnings == []
