"""`rsm.config.*`: the selected store, and refused settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runtime.config.errors import ConfigError
from storage.objects import StoreSettings

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("url", "scheme", "bucket", "prefix"),
    [
        ("s3://bucket", "s3", "bucket", ""),
        ("s3://bucket/a/b/", "s3", "bucket", "a/b"),
        ("gs://bucket/a", "gs", "bucket", "a"),
        ("az://container/a%20b", "az", "container", "a b"),
        ("file:///var/tier/", "file", "", "/var/tier"),
    ],
)
def test_urls(url: str, scheme: str, bucket: str, prefix: str) -> None:
    found = StoreSettings.of({"url": url})
    assert (found.scheme, found.bucket, found.prefix) == (scheme, bucket, prefix)


@pytest.mark.parametrize(
    "url",
    ["", "bucket", "http://bucket/a", "s3:///a", "s3://", "file://host/a", "file:///", "file:a"]
    + ["s3://user:secret@bucket/a", "s3://bucket/a?x=1", "s3://bucket#a"],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        StoreSettings.of({"url": url})
    assert refused.value.key == "rsm.config.url"


def test_settings_go_to_the_store_in_its_names() -> None:
    found = StoreSettings.of(
        {
            "url": "s3://bucket",
            "endpoint": "http://localhost:9000",
            "access.key.id": "k",
            "timeout.ms": "700",
            "retries": "0",
        }
    )
    assert found.options == {
        "endpoint": "http://localhost:9000",
        "access_key_id": "k",
        "virtual_hosted_style_request": "false",
        "region": "us-east-1",
    }
    assert (found.timeout_ms, found.retries, found.plain_http) == (700, 0, True)


@pytest.mark.parametrize(
    ("given", "hosted"),
    [({}, "true"), ({"endpoint": "https://s3"}, "false"), ({"path.style": "true"}, "false")]
    + [({"endpoint": "https://s3", "path.style": "false"}, "true")],
)
def test_path_style(given: dict[str, str], hosted: str) -> None:
    found = StoreSettings.of({"url": "s3://bucket", **given})
    assert found.options["virtual_hosted_style_request"] == hosted
    assert not found.plain_http


def test_every_mistake_is_named_and_no_value_is_shown() -> None:
    given = {
        "url": "s3://bucket",
        "secret.acces.key": "hunter2",
        "account.key": "hunter2",
        "timeout.ms": "soon",
        "part.bytes": "1000",
        "anonymous": "perhaps",
        "region": "",
    }
    with pytest.raises(ConfigError) as refused:
        StoreSettings.of(given)
    text = str(refused.value)
    for name in given.keys() - {"url"}:
        assert f"rsm.config.{name}=" in text
    assert "hunter2" not in text
    assert "secret.access.key" in text, "what there is instead is said"


def test_secrets_are_not_printed() -> None:
    found = StoreSettings.of({"url": "s3://bucket/a", "secret.access.key": "hunter2"})
    assert "hunter2" not in repr(found)
    assert found.url == "s3://bucket/a"


def test_obstore_is_not_imported_before_a_store_is_opened() -> None:
    """Its threads must not exist when nodes are forked."""
    modules = "storage.objects, storage.tiered.survey, storage.tiered.metadata, sys"
    program = f"import {modules}; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
