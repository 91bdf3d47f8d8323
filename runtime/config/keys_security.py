"""Node keys: TLS, SASL, delegation tokens, authorisation."""

from __future__ import annotations

from runtime.config.schema import (
    NOT_NULL,
    Dynamic,
    Importance,
    Type,
    a_list,
    at_least,
    between,
    one_of,
    one_of_any_case,
)
from runtime.config.schema import ConfigKey as Key

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
SHORT = Type.SHORT
LONG = Type.LONG
DOUBLE = Type.DOUBLE
LIST = Type.LIST
CLASS = Type.CLASS
PASSWORD = Type.PASSWORD
HIGH = Importance.HIGH
LOW = Importance.LOW
PER_BROKER = Dynamic.PER_BROKER


KEYS: tuple[Key, ...] = (
    Key("authorizer.class.name", STRING, "", NOT_NULL, LOW),
    Key("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW),
    Key("connections.max.reauth.ms", LONG, 0),
    Key("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1), LOW),
    Key("delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1)),
    Key("delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1)),
    Key("delegation.token.secret.key", PASSWORD),
    Key(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        dynamic=PER_BROKER,
    ),
    Key("sasl.client.callback.handler.class", CLASS),
    Key("sasl.enabled.mechanisms", LIST, ["GSSAPI"], a_list(empty=True), dynamic=PER_BROKER),
    Key("sasl.jaas.config", PASSWORD, dynamic=PER_BROKER),
    Key("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", dynamic=PER_BROKER),
    Key("sasl.kerberos.min.time.before.relogin", LONG, 60_000, dynamic=PER_BROKER),
    Key(
        "sasl.kerberos.principal.to.local.rules",
        LIST,
        ["DEFAULT"],
        a_list(empty=True),
        dynamic=PER_BROKER,
    ),
    Key("sasl.kerberos.service.name", STRING, dynamic=PER_BROKER),
    Key("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, dynamic=PER_BROKER),
    Key("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, dynamic=PER_BROKER),
    Key("sasl.login.callback.handler.class", CLASS),
    Key("sasl.login.class", CLASS),
    Key("sasl.login.connect.timeout.ms", INT, None, None, LOW),
    Key("sasl.login.read.timeout.ms", INT, None, None, LOW),
    Key("sasl.login.refresh.buffer.seconds", SHORT, 300, dynamic=PER_BROKER),
    Key("sasl.login.refresh.min.period.seconds", SHORT, 60, dynamic=PER_BROKER),
    Key("sasl.login.refresh.window.factor", DOUBLE, 0.8, dynamic=PER_BROKER),
    Key("sasl.login.refresh.window.jitter", DOUBLE, 0.05, dynamic=PER_BROKER),
    Key("sasl.login.retry.backoff.max.ms", LONG, 10_000, None, LOW),
    Key("sasl.login.retry.backoff.ms", LONG, 100, None, LOW),
    Key("sasl.mechanism.controller.protocol", STRING, "GSSAPI", None, HIGH),
    Key("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", dynamic=PER_BROKER),
    Key("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", one_of_any_case("ES256", "RS256")),
    Key("sasl.oauthbearer.assertion.claim.aud", STRING),
    Key("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, between(0, 86_400), LOW),
    Key("sasl.oauthbearer.assertion.claim.iss", STRING),
    Key("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False),
    Key("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, between(0, 3600), LOW),
    Key("sasl.oauthbearer.assertion.claim.sub", STRING),
    Key("sasl.oauthbearer.assertion.file", STRING),
    Key("sasl.oauthbearer.assertion.private.key.file", STRING),
    Key("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD),
    Key("sasl.oauthbearer.assertion.template.file", STRING),
    Key("sasl.oauthbearer.client.credentials.client.id", STRING),
    Key("sasl.oauthbearer.client.credentials.client.secret", PASSWORD),
    Key("sasl.oauthbearer.clock.skew.seconds", INT, 30, None, LOW),
    Key("sasl.oauthbearer.expected.audience", LIST, [], a_list(empty=True), HIGH),
    Key("sasl.oauthbearer.expected.issuer", STRING, None, None, HIGH),
    Key("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, None, LOW),
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, None, LOW),
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, None, LOW),
    Key("sasl.oauthbearer.jwks.endpoint.url", STRING),
    Key(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    ),
    Key(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
    Key("sasl.oauthbearer.scope", STRING),
    Key("sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW),
    Key("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW),
    Key("sasl.oauthbearer.token.endpoint.url", STRING),
    Key("sasl.server.callback.handler.class", CLASS),
    Key("sasl.server.max.receive.size", INT, 524_288),
    Key(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Key("security.providers", STRING, None, None, LOW),
    Key("ssl.allow.dn.changes", BOOLEAN, False, None, LOW),
    Key("ssl.allow.san.changes", BOOLEAN, False, None, LOW),
    Key("ssl.cipher.suites", LIST, [], a_list(empty=True), dynamic=PER_BROKER),
    Key(
        "ssl.client.auth",
        STRING,
        "none",
        one_of("required", "requested", "none"),
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.enabled.protocols",
        LIST,
        ["TLSv1.2", "TLSv1.3"],
        a_list(empty=True),
        dynamic=PER_BROKER,
    ),
    Key("ssl.endpoint.identification.algorithm", STRING, "https", None, LOW, dynamic=PER_BROKER),
    Key("ssl.engine.factory.class", CLASS, None, None, LOW, dynamic=PER_BROKER),
    Key("ssl.key.password", PASSWORD, dynamic=PER_BROKER),
    Key("ssl.keymanager.algorithm", STRING, "SunX509", dynamic=PER_BROKER),
    Key("ssl.keystore.certificate.chain", PASSWORD, dynamic=PER_BROKER),
    Key("ssl.keystore.key", PASSWORD, dynamic=PER_BROKER),
    Key("ssl.keystore.location", STRING, dynamic=PER_BROKER),
    Key("ssl.keystore.password", PASSWORD, dynamic=PER_BROKER),
    Key("ssl.keystore.type", STRING, "JKS", dynamic=PER_BROKER),
    Key("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW),
    Key("ssl.protocol", STRING, "TLSv1.3", dynamic=PER_BROKER),
    Key("ssl.provider", STRING, dynamic=PER_BROKER),
    Key("ssl.secure.random.implementation", STRING, None, None, LOW, dynamic=PER_BROKER),
    Key("ssl.trustmanager.algorithm", STRING, "PKIX", dynamic=PER_BROKER),
    Key("ssl.truststore.certificates", PASSWORD, dynamic=PER_BROKER),
    Key("ssl.truststore.location", STRING, dynamic=PER_BROKER),
    Key("ssl.truststore.password", PASSWORD, dynamic=PER_BROKER),
    Key("ssl.truststore.type", STRING, "JKS", dynamic=PER_BROKER),
)
