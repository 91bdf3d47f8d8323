"""Settings of an object store, from `rsm.config.*`, which KIP-405 passes to the store.

The names are Kraftbox's own, since KIP-405 leaves them to the store. A name that the URL's kind of
store does not have is refused: otherwise a typo in a credential's name would mean no credential.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from runtime.config.errors import ConfigError

PREFIX: Final = "rsm.config."
URL: Final = "url"
PART_BYTES_MIN: Final = 5 << 20
"""S3 accepts no smaller parts, except for the last one."""

_FORMS: Final = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///PATH"


def _text(value: str) -> str:
    if not value:
        raise ValueError("a text that is not empty")
    return value


def _boolean(value: str) -> str:
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("true or false")
    return lowered


def _number(low: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        digits = value.strip()
        if not digits.isascii() or not digits.isdigit() or int(digits) < low:
            raise ValueError(f"a whole number from {low} on")
        return int(digits)

    return parse


_COMMON: Final[Mapping[str, Callable[[str], Any]]] = {
    "timeout.ms": _number(1),
    "connect.timeout.ms": _number(1),
    "retries": _number(0),
    "part.bytes": _number(PART_BYTES_MIN),
    "parts.at.once": _number(1),
}
_S3: Final = {
    "endpoint": "endpoint",
    "region": "region",
    "access.key.id": "access_key_id",
    "secret.access.key": "secret_access_key",
    "session.token": "session_token",
    "server.side.encryption": "server_side_encryption",
    "kms.key.id": "sse_kms_key_id",
    "anonymous": "skip_signature",
    "path.style": "virtual_hosted_style_request",
}
_GS: Final = {
    "endpoint": "base_url",
    "service.account": "service_account",
    "service.account.key": "service_account_key",
    "anonymous": "skip_signature",
}
_AZ: Final = {
    "endpoint": "endpoint",
    "account.name": "account_name",
    "account.key": "account_key",
    "sas.token": "sas_key",
    "tenant.id": "tenant_id",
    "client.id": "client_id",
    "client.secret": "client_secret",
    "anonymous": "skip_signature",
    "emulator": "use_emulator",
}
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {"s3": _S3, "gs": _GS, "az": _AZ, "file": {}}
_BOOLEANS: Final = frozenset({"anonymous", "path.style", "emulator"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Location of a store, and how to connect to it."""

    scheme: str
    """s3, gs, az or file."""
    bucket: str
    """The bucket or container; empty for files."""
    prefix: str
    """Common prefix of all keys, without `/` at either end; for files the absolute folder."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options for the store, in obstore's names. They contain secrets and are never printed."""
    timeout_ms: int = 30_000
    connect_timeout_ms: int = 5_000
    retries: int = 2
    part_bytes: int = 8 << 20
    parts_at_once: int = 4

    @property
    def plain_http(self) -> bool:
        """True if the configured endpoint is not encrypted."""
        given = self.options.get("endpoint", self.options.get("base_url", ""))
        return given.startswith("http://") or self.options.get("use_emulator") == "true"

    @property
    def url(self) -> str:
        """The store's URL for messages, without credentials."""
        return f"{self.scheme}://{'/'.join(part for part in (self.bucket, self.prefix) if part)}"

    @classmethod
    def of(cls, given: Mapping[str, str], *, prefix: str = PREFIX) -> StoreSettings:
        """Create settings from `given`, whose names lack `prefix`.

        Raises ConfigError with all problems; it contains unknown names, but no secret values.
        """
        errors: list[ConfigError] = []
        url = given.get(URL, "")
        try:
            scheme, bucket, path = _split(url)
        except ValueError as error:
            raise ConfigError(prefix + URL, url or None, str(error)) from None
        names = _NAMES[scheme]
        values: dict[str, Any] = {}
        options: dict[str, str] = {}
        for name, value in given.items():
            try:
                if name in _COMMON:
                    values[name.replace(".", "_")] = _COMMON[name](value)
                elif name in names:
                    options[names[name]] = (_boolean if name in _BOOLEANS else _text)(value)
                elif name != URL:
                    raise ValueError(f"{scheme}:// has no such setting; it has {_known(names)}")
            except ValueError as error:
                errors.append(ConfigError(prefix + name, "(hidden)", str(error)))
        if errors:
            raise ConfigError.join(errors)
        if scheme == "s3":
            # A configured endpoint is addressed by path by default: bucket names as host names need
            # DNS entries that private installations lack.
            by_path = options.get("virtual_hosted_style_request") or str("endpoint" in options)
            hosted = by_path.lower() != "true"
            options["virtual_hosted_style_request"] = str(hosted).lower()
            if "endpoint" in options:
                options.setdefault("region", "us-east-1")
        return cls(scheme=scheme, bucket=bucket, prefix=path, options=options, **values)


def _known(names: Mapping[str, str]) -> str:
    return ", ".join(sorted([URL, *_COMMON, *names]))


def _split(url: str) -> tuple[str, str, str]:
    """Return (scheme, bucket, prefix). Raises ValueError that lists the allowed forms."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.query or parts.fragment or parts.username or parts.scheme not in _NAMES:
        raise ValueError(_FORMS)
    if parts.scheme == "file":
        if parts.netloc or len(path.rstrip("/")) < 2:
            raise ValueError("a folder of its own, as file:///PATH")
        return "file", "", path.rstrip("/")
    if not parts.netloc:
        raise ValueError(_FORMS)
    return parts.scheme, parts.netloc, path.strip("/")
