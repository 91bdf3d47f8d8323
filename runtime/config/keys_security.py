"""Node keys: TLS, SASL, delegation tokens, authorisation."""

from __future__ import annotations

from runtime.config.schema import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    NodeKey,
)
from runtime.config.validators import NOT_NULL, a_list, at_least, between, one_of, one_of_any_case

AUTHORIZER_CLASS_NAME = NodeKey("authorizer.class.name", STRING, "", NOT_NULL, LOW)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = NodeKey(
    "connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW
)
CONNECTIONS_MAX_REAUTH_MS = NodeKey("connections.max.reauth.ms", LONG, 0)
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS = NodeKey(
    "delegation.token.expiry.check.interval.ms", LONG, 3_600_000, at_least(1), LOW
)
DELEGATION_TOKEN_EXPIRY_TIME_MS = NodeKey(
    "delegation.token.expiry.time.ms", LONG, 86_400_000, at_least(1)
)
DELEGATION_TOKEN_MAX_LIFETIME_MS = NodeKey(
    "delegation.token.max.lifetime.ms", LONG, 604_800_000, at_least(1)
)
DELEGATION_TOKEN_SECRET_KEY = NodeKey("delegation.token.secret.key", PASSWORD, None)
PRINCIPAL_BUILDER_CLASS = NodeKey(
    "principal.builder.class",
    CLASS,
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    dynamic=PER_BROKER,
)
SASL_CLIENT_CALLBACK_HANDLER_CLASS = NodeKey("sasl.client.callback.handler.class", CLASS, None)
SASL_ENABLED_MECHANISMS = NodeKey(
    "sasl.enabled.mechanisms", LIST, ["GSSAPI"], a_list(empty=True), dynamic=PER_BROKER
)
SASL_JAAS_CONFIG = NodeKey("sasl.jaas.config", PASSWORD, None, dynamic=PER_BROKER)
SASL_KERBEROS_KINIT_CMD = NodeKey(
    "sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", dynamic=PER_BROKER
)
SASL_KERBEROS_MIN_TIME_BEFORE_RELOGIN = NodeKey(
    "sasl.kerberos.min.time.before.relogin", LONG, 60_000, dynamic=PER_BROKER
)
SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES = NodeKey(
    "sasl.kerberos.principal.to.local.rules",
    LIST,
    ["DEFAULT"],
    a_list(empty=True),
    dynamic=PER_BROKER,
)
SASL_KERBEROS_SERVICE_NAME = NodeKey("sasl.kerberos.service.name", STRING, None, dynamic=PER_BROKER)
SASL_KERBEROS_TICKET_RENEW_JITTER = NodeKey(
    "sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, dynamic=PER_BROKER
)
SASL_KERBEROS_TICKET_RENEW_WINDOW_FACTOR = NodeKey(
    "sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, dynamic=PER_BROKER
)
SASL_LOGIN_CALLBACK_HANDLER_CLASS = NodeKey("sasl.login.callback.handler.class", CLASS, None)
SASL_LOGIN_CLASS = NodeKey("sasl.login.class", CLASS, None)
SASL_LOGIN_CONNECT_TIMEOUT_MS = NodeKey("sasl.login.connect.timeout.ms", INT, None, None, LOW)
SASL_LOGIN_READ_TIMEOUT_MS = NodeKey("sasl.login.read.timeout.ms", INT, None, None, LOW)
SASL_LOGIN_REFRESH_BUFFER_SECONDS = NodeKey(
    "sasl.login.refresh.buffer.seconds", SHORT, 300, dynamic=PER_BROKER
)
SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS = NodeKey(
    "sasl.login.refresh.min.period.seconds", SHORT, 60, dynamic=PER_BROKER
)
SASL_LOGIN_REFRESH_WINDOW_FACTOR = NodeKey(
    "sasl.login.refresh.window.factor", DOUBLE, 0.8, dynamic=PER_BROKER
)
SASL_LOGIN_REFRESH_WINDOW_JITTER = NodeKey(
    "sasl.login.refresh.window.jitter", DOUBLE, 0.05, dynamic=PER_BROKER
)
SASL_LOGIN_RETRY_BACKOFF_MAX_MS = NodeKey(
    "sasl.login.retry.backoff.max.ms", LONG, 10_000, None, LOW
)
SASL_LOGIN_RETRY_BACKOFF_MS = NodeKey("sasl.login.retry.backoff.ms", LONG, 100, None, LOW)
SASL_MECHANISM_CONTROLLER_PROTOCOL = NodeKey(
    "sasl.mechanism.controller.protocol", STRING, "GSSAPI", None, HIGH
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL = NodeKey(
    "sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", dynamic=PER_BROKER
)
SASL_OAUTHBEARER_ALLOW_UNVERIFIED_AUDIENCE = NodeKey(
    "sasl.oauthbearer.allow.unverified.audience", BOOLEAN, False
)
SASL_OAUTHBEARER_ALLOW_UNVERIFIED_ISSUER = NodeKey(
    "sasl.oauthbearer.allow.unverified.issuer", BOOLEAN, False
)
SASL_OAUTHBEARER_ASSERTION_ALGORITHM = NodeKey(
    "sasl.oauthbearer.assertion.algorithm", STRING, "RS256", one_of_any_case("ES256", "RS256")
)
SASL_OAUTHBEARER_ASSERTION_CLAIM_AUD = NodeKey("sasl.oauthbearer.assertion.claim.aud", STRING, None)
SASL_OAUTHBEARER_ASSERTION_CLAIM_EXP_SECONDS = NodeKey(
    "sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, between(0, 86_400), LOW
)
SASL_OAUTHBEARER_ASSERTION_CLAIM_ISS = NodeKey("sasl.oauthbearer.assertion.claim.iss", STRING, None)
SASL_OAUTHBEARER_ASSERTION_CLAIM_JTI_INCLUDE = NodeKey(
    "sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False
)
SASL_OAUTHBEARER_ASSERTION_CLAIM_NBF_SECONDS = NodeKey(
    "sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, between(0, 3600), LOW
)
SASL_OAUTHBEARER_ASSERTION_CLAIM_SUB = NodeKey("sasl.oauthbearer.assertion.claim.sub", STRING, None)
SASL_OAUTHBEARER_ASSERTION_FILE = NodeKey("sasl.oauthbearer.assertion.file", STRING, None)
SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE = NodeKey(
    "sasl.oauthbearer.assertion.private.key.file", STRING, None
)
SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_PASSPHRASE = NodeKey(
    "sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None
)
SASL_OAUTHBEARER_ASSERTION_TEMPLATE_FILE = NodeKey(
    "sasl.oauthbearer.assertion.template.file", STRING, None
)
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID = NodeKey(
    "sasl.oauthbearer.client.credentials.client.id", STRING, None
)
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET = NodeKey(
    "sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None
)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = NodeKey(
    "sasl.oauthbearer.clock.skew.seconds", INT, 30, None, LOW
)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = NodeKey(
    "sasl.oauthbearer.expected.audience", LIST, [], a_list(empty=True), HIGH
)
SASL_OAUTHBEARER_EXPECTED_ISSUER = NodeKey(
    "sasl.oauthbearer.expected.issuer", STRING, None, None, HIGH
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = NodeKey(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, None, LOW
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = NodeKey(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, None, LOW
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = NodeKey(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, None, LOW
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = NodeKey("sasl.oauthbearer.jwks.endpoint.url", STRING, None)
SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS = NodeKey(
    "sasl.oauthbearer.jwt.retriever.class",
    CLASS,
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
)
SASL_OAUTHBEARER_JWT_VALIDATOR_CLASS = NodeKey(
    "sasl.oauthbearer.jwt.validator.class",
    CLASS,
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
)
SASL_OAUTHBEARER_SCOPE = NodeKey("sasl.oauthbearer.scope", STRING, None)
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME = NodeKey(
    "sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW
)
SASL_OAUTHBEARER_SUB_CLAIM_NAME = NodeKey(
    "sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW
)
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL = NodeKey("sasl.oauthbearer.token.endpoint.url", STRING, None)
SASL_SERVER_CALLBACK_HANDLER_CLASS = NodeKey("sasl.server.callback.handler.class", CLASS, None)
SASL_SERVER_MAX_RECEIVE_SIZE = NodeKey("sasl.server.max.receive.size", INT, 524_288)
SECURITY_INTER_BROKER_PROTOCOL = NodeKey(
    "security.inter.broker.protocol",
    STRING,
    "PLAINTEXT",
    one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
)
SECURITY_PROVIDERS = NodeKey("security.providers", STRING, None, None, LOW)
SSL_ALLOW_DN_CHANGES = NodeKey("ssl.allow.dn.changes", BOOLEAN, False, None, LOW)
SSL_ALLOW_SAN_CHANGES = NodeKey("ssl.allow.san.changes", BOOLEAN, False, None, LOW)
SSL_CIPHER_SUITES = NodeKey("ssl.cipher.suites", LIST, [], a_list(empty=True), dynamic=PER_BROKER)
SSL_CLIENT_AUTH = NodeKey(
    "ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), dynamic=PER_BROKER
)
SSL_ENABLED_PROTOCOLS = NodeKey(
    "ssl.enabled.protocols", LIST, ["TLSv1.2", "TLSv1.3"], a_list(empty=True), dynamic=PER_BROKER
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = NodeKey(
    "ssl.endpoint.identification.algorithm", STRING, "https", None, LOW, dynamic=PER_BROKER
)
SSL_ENGINE_FACTORY_CLASS = NodeKey(
    "ssl.engine.factory.class", CLASS, None, None, LOW, dynamic=PER_BROKER
)
SSL_KEY_PASSWORD = NodeKey("ssl.key.password", PASSWORD, None, dynamic=PER_BROKER)
SSL_KEYMANAGER_ALGORITHM = NodeKey(
    "ssl.keymanager.algorithm", STRING, "SunX509", dynamic=PER_BROKER
)
SSL_KEYSTORE_CERTIFICATE_CHAIN = NodeKey(
    "ssl.keystore.certificate.chain", PASSWORD, None, dynamic=PER_BROKER
)
SSL_KEYSTORE_KEY = NodeKey("ssl.keystore.key", PASSWORD, None, dynamic=PER_BROKER)
SSL_KEYSTORE_LOCATION = NodeKey("ssl.keystore.location", STRING, None, dynamic=PER_BROKER)
SSL_KEYSTORE_PASSWORD = NodeKey("ssl.keystore.password", PASSWORD, None, dynamic=PER_BROKER)
SSL_KEYSTORE_TYPE = NodeKey("ssl.keystore.type", STRING, "JKS", dynamic=PER_BROKER)
SSL_PRINCIPAL_MAPPING_RULES = NodeKey("ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW)
SSL_PROTOCOL = NodeKey("ssl.protocol", STRING, "TLSv1.3", dynamic=PER_BROKER)
SSL_PROVIDER = NodeKey("ssl.provider", STRING, None, dynamic=PER_BROKER)
SSL_SECURE_RANDOM_IMPLEMENTATION = NodeKey(
    "ssl.secure.random.implementation", STRING, None, None, LOW, dynamic=PER_BROKER
)
SSL_TRUSTMANAGER_ALGORITHM = NodeKey(
    "ssl.trustmanager.algorithm", STRING, "PKIX", dynamic=PER_BROKER
)
SSL_TRUSTSTORE_CERTIFICATES = NodeKey(
    "ssl.truststore.certificates", PASSWORD, None, dynamic=PER_BROKER
)
SSL_TRUSTSTORE_LOCATION = NodeKey("ssl.truststore.location", STRING, None, dynamic=PER_BROKER)
SSL_TRUSTSTORE_PASSWORD = NodeKey("ssl.truststore.password", PASSWORD, None, dynamic=PER_BROKER)
SSL_TRUSTSTORE_TYPE = NodeKey("ssl.truststore.type", STRING, "JKS", dynamic=PER_BROKER)
