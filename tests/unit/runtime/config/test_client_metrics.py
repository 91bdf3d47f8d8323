"""Configurations of client-metrics subscriptions."""

import pytest

from runtime.config import ConfigError, UnknownKey
from runtime.config.client_metrics import interval_problem, validate_client_metrics_config


def test_unknown_names():
    with pytest.raises(UnknownKey):
        validate_client_metrics_config({"interval": "1"})


@pytest.mark.parametrize(
    "text", ["client_id", "frob=1", "client_id=a(", "client_id=a,frob=1", "client_id=" + "(" * 9000]
)
def test_bad_patterns(text):
    with pytest.raises(ConfigError) as refused:
        validate_client_metrics_config({"match": text})
    assert refused.value.key == "match"


@pytest.mark.parametrize("text", ["", "client_id=a.*", "client_id=a,client_source_port=[0-9]+"])
def test_good_patterns(text):
    validate_client_metrics_config({"match": text, "metrics": "a.,b.", "interval.ms": "5"})


@pytest.mark.parametrize(
    ("text", "bad"), [("99", True), ("100", False), ("3600000", False), ("3600001", True)]
)
def test_how_often_clients_push(text, bad):
    assert (interval_problem({"interval.ms": text}) is not None) is bad
    assert interval_problem({}) is None
