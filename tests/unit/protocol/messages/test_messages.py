"""The registry of messages, which loads only the messages that a node uses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from protocol.api_keys import ApiKey
from protocol.messages import REMOVED_APIS, request_class, response_class

PROGRAM = """
import sys
from protocol.messages import request_class
from protocol.api_keys import ApiKey
request_class(ApiKey.FETCH)
loaded = [name for name in sys.modules if name.startswith("protocol.messages.")]
assert loaded == ["protocol.messages.fetch"], loaded
assert "protocol.twin" not in sys.modules
"""


def test_every_api_has_a_request_and_a_response() -> None:
    for key in ApiKey:
        if key in REMOVED_APIS:
            continue
        request, response = request_class(key), response_class(key)
        assert request.API_KEY == response.API_KEY == key
        assert request.response_class() is response
        assert request.VERSIONS == response.VERSIONS
        assert request.LISTENERS or key in {
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
        }


@pytest.mark.parametrize("key", sorted(REMOVED_APIS))
def test_removed_apis_have_none(key: ApiKey) -> None:
    with pytest.raises(LookupError):
        request_class(key)
    with pytest.raises(LookupError):
        response_class(key)


def test_registry_imports_only_used_messages() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_message_docstrings_name_api_key_and_versions() -> None:
    """The first line of each module names API key and versions as the classes do."""
    for key in ApiKey:
        if key in REMOVED_APIS:
            continue
        request = request_class(key)
        heading = (sys.modules[request.__module__].__doc__ or "").splitlines()[0]
        plural = "" if len(request.VERSIONS.each()) == 1 else "s"
        name = request.__name__.removesuffix("Request")
        expected = f"{name} (API key {int(key)}), version{plural} {request.VERSIONS}"
        if request.UNSTABLE:
            expected += f"; version {request.UNSTABLE} is unstable"
        assert heading == expected + "."
