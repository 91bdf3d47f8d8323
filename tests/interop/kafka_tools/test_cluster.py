"""Kafka's tools for the cluster: its nodes, features, quorum, replicas, and permissions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from testkit.kafka.tool_table import Trial
from testkit.kafka.twins import CLUSTER_ID
from tests.interop.kafka_tools.toolbox import NO_AUTHORIZER, Admin, Node, T, table, tool

pytestmark = pytest.mark.interop


@tool(f"{T}ClusterTool", "kafka-cluster")
def test_cluster(trial: Trial, node: Node) -> None:
    for at, by in ((node.at, ""), (node.controller, ", by a controller")):
        printed = trial.works(f"cluster-id{by}", "cluster-id", *at)
        assert printed.strip() == f"Cluster ID: {CLUSTER_ID}"
        port = node.place.controller_port if by else node.place.port
        listed = trial.works(f"list-endpoints{by}", "list-endpoints", *at)
        assert f"127.0.0.1 {port}" in re.sub(" +", " ", listed)
        unknown = trial.run("unregister", *at, "--id", "77")
        assert "BrokerIdNotRegisteredException" in unknown.text
        printed = trial.works(f"api-versions{by}", "api-versions", *at)
        assert "ApiVersions(18): 0 to 5 [usable: 5]" in printed
        assert "UnregisterController(94): 0 [usable: 0]" in printed
        unknown = trial.run("unregister-controller", *at, "--id", "77")
        assert "ControllerIdNotRegisteredException" in unknown.text
        active = trial.run("unregister-controller", *at, "--id", "1")
        assert "InvalidRequestException" in active.text
    fenced = trial.works("fenced brokers", "list-endpoints", *node.at, "--include-fenced-brokers")
    assert "unfenced" in fenced


@tool(f"{T}BrokerApiVersionsCommand", "kafka-broker-api-versions")
def test_broker_api_versions(trial: Trial, node: Node) -> None:
    printed = trial.works("ask", *node.at)
    assert f"127.0.0.1:{node.place.port} (id: 1 rack: r1 isFenced: false)" in printed
    assert "Produce(0): 0 to 13 [usable: 13]" in printed
    assert "Fetch(1): 4 to 18 [usable: 18]" in printed
    assert "ShareFetch(78): UNSUPPORTED" in printed


@tool(f"{T}FeatureCommand", "kafka-features")
def test_features(trial: Trial, node: Node) -> None:
    for at, by in ((node.at, ""), (node.controller, ", by a controller")):
        printed = re.sub(r"\s+", " ", trial.works(f"describe{by}", *at, "describe"))
        assert (
            "metadata.version SupportedMinVersion: 3.3-IV3 SupportedMaxVersion: 4.4-IV2 "
            "FinalizedVersionLevel: 4.4-IV2"
        ) in printed
        trial.works(
            f"upgrade to the level it has{by}", *at, "upgrade", "--feature", "metadata.version=33"
        )
    trial.works("version-mapping", "version-mapping", "--release-version", "4.4")
    trial.works("feature-dependencies", "feature-dependencies", "--feature", "group.version=1")
    trial.refuses(
        "upgrade of what is not built",
        *node.at,
        "upgrade",
        "--feature",
        "transaction.version=2",
        saying="Local controller 1 does not support this feature.",
    )
    trial.refuses(
        "upgrade --release-version, which names features that are not built",
        *(*node.at, "upgrade", "--release-version", "4.4"),
        saying="Local controller 1 does not support this feature.",
    )
    trial.refuses(
        "downgrade that loses metadata",
        *node.at,
        "downgrade",
        "--feature",
        "metadata.version=7",
        saying="Refusing to perform the requested downgrade because it might delete metadata",
    )


@tool(f"{T}MetadataQuorumCommand", "kafka-metadata-quorum")
def test_metadata_quorum(trial: Trial, node: Node) -> None:
    for at, by in ((node.at, ""), (node.controller, ", by a controller")):
        printed = trial.works(f"describe --status{by}", *at, "describe", "--status")
        assert re.search(r"LeaderId:\s+1\n", printed)
        assert f"CONTROLLER://127.0.0.1:{node.place.controller_port}" in printed
        printed = trial.works(f"describe --replication{by}", *at, "describe", "--replication")
        (row,) = table(printed)
        assert (row["NodeId"], row["Status"], row["Lag"]) == ("1", "Leader", "0")
    who = ("--controller-id", "1", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAQ")
    trial.refuses(
        "remove-controller",
        *node.at,
        "remove-controller",
        *who,
        saying="The node does not support REMOVE_RAFT_VOTER",
    )
    trial.refuses(
        "remove-controller --unregister",
        *(*node.at, "remove-controller", *who, "--unregister"),
        saying="The node does not support REMOVE_RAFT_VOTER",
    )
    config = ("--command-config", str(node.place.write_config()))
    trial.refuses(
        "add-controller",
        *node.at,
        *config,
        "add-controller",
        saying="The node does not support ADD_RAFT_VOTER",
    )


@tool(f"{T}LogDirsCommand", "kafka-log-dirs")
def test_log_dirs(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("log-dirs", partitions=2, records=10)
    asked = ("--describe", "--topic-list", topic, "--broker-list", "1")
    printed = trial.works("describe", *node.at, *asked)
    (broker,) = json.loads(printed.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert (directory["logDir"], directory["error"]) == (str(node.place.data), None)
    found = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert set(found) == {f"{topic}-0", f"{topic}-1"}
    assert sum(found.values()) > 0


@tool(f"{T}LeaderElectionCommand", "kafka-leader-election")
def test_leader_election(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("leader-election")
    for kind in ("preferred", "unclean"):
        which = ("--election-type", kind, "--topic", topic, "--partition", "0")
        printed = trial.works(f"{kind}, nothing to do", *node.at, *which)
        assert f"Valid replica already elected for partitions {topic}-0" in printed
    trial.works("all", *node.at, "--election-type", "preferred", "--all-topic-partitions")


@tool(f"{T}reassign.ReassignPartitionsCommand", "kafka-reassign-partitions")
def test_reassign_partitions(trial: Trial, node: Node, admin: Admin, tmp_path: Path) -> None:
    topic = admin.topic("reassign")
    for at, by in ((node.at, ""), (node.controller, ", by a controller")):
        assert "No partition reassignments found." in trial.works(f"list{by}", *at, "--list")
    topics, moves = tmp_path / "topics.json", tmp_path / "moves.json"
    topics.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    wanted = ("--topics-to-move-json-file", str(topics), "--broker-list", "1")
    proposed = trial.works("generate", *node.at, "--generate", *wanted).splitlines()[-1]
    assert json.loads(proposed)["partitions"][0]["replicas"] == [1]
    moves.write_text(proposed)
    plan = ("--reassignment-json-file", str(moves))
    printed = trial.works("execute", *node.at, "--execute", *plan)
    assert "Successfully started partition reassignment" in printed
    printed = trial.works("verify", *node.at, "--verify", *plan)
    assert f"Reassignment of partition {topic}-0 is completed." in printed
    printed = trial.works("cancel", *node.at, "--cancel", *plan)
    assert "None of the specified partition reassignments are active." in printed


@tool(f"{T}TransactionsCommand", "kafka-transactions")
def test_transactions(trial: Trial, node: Node, admin: Admin) -> None:
    topic = admin.topic("transactions", records=2)
    where = ("--topic", topic, "--partition", "0")
    (row,) = table(trial.works("describe-producers", *node.at, "describe-producers", *where))
    assert (row["ProducerEpoch"], row["LastSequence"]) == ("0", "1")
    trial.works("find-hanging", *node.at, "find-hanging", "--broker-id", "1")
    trial.refuses("list", *node.at, "list", saying="The node does not support LIST_TRANSACTIONS")
    trial.refuses(
        "describe",
        *node.at,
        "describe",
        "--transactional-id",
        "x",
        saying="failed due to an unexpected error",
    )
    whom = ("--producer-id", "1", "--producer-epoch", "0", "--coordinator-epoch", "0")
    trial.refuses(
        "abort", *node.at, "abort", *where, *whom, saying="does not support WRITE_TXN_MARKERS"
    )
    trial.refuses(
        "forceTerminateTransaction",
        *node.at,
        "forceTerminateTransaction",
        "--transactionalId",
        "x",
        saying="failed due to an unexpected error",
    )


@tool(f"{T}TransactionalMessageCopier", None)
def test_transactional_message_copier(trial: Trial, node: Node, admin: Admin) -> None:
    source, target = admin.topic("copier-in", records=1), admin.topic("copier-out")
    trial.refuses(
        "copy",
        *("--broker-list", node.place.bootstrap, "--transactional-id", "copier"),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--consumer-group", "copier", "--max-messages", "1"),
        saying="Kraftbox does not support transactions",
    )


@tool(f"{T}AclCommand", "kafka-acls")
def test_acls(trial: Trial, node: Node) -> None:
    for at, by in ((node.at, ""), (node.controller, ", by a controller")):
        trial.refuses(f"list{by}", *at, "--list", saying=NO_AUTHORIZER)
    rule = ("--allow-principal", "User:u", "--operation", "Read", "--topic", "t")
    trial.refuses("add", *node.at, "--add", *rule, saying=NO_AUTHORIZER)
    trial.refuses("remove", *node.at, "--remove", "--force", *rule, saying=NO_AUTHORIZER)


@tool(f"{T}DelegationTokenCommand", "kafka-delegation-tokens")
def test_delegation_tokens(trial: Trial, node: Node) -> None:
    config = ("--command-config", "/dev/null")
    for what, api, arguments in (
        ("create", "CREATE", ("--max-life-time-period", "-1")),
        ("renew", "RENEW", ("--renew-time-period", "-1", "--hmac", "AAAA")),
        ("expire", "EXPIRE", ("--expiry-time-period", "-1", "--hmac", "AAAA")),
        ("describe", "DESCRIBE", ()),
    ):
        saying = f"The node does not support {api}_DELEGATION_TOKEN"
        trial.refuses(what, *node.at, *config, f"--{what}", *arguments, saying=saying)
