"""kafka-features.sh: describe, upgrade, downgrade and disable features of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from client.cluster_client import ClusterClient
from client.errors import check
from kraftbox.cli.connect import run
from kraftbox.cli.output import CommandFailed, say
from kraftbox.kafka_tools.options import add_bootstrap, bootstrap_of, pairs, parser
from metalog.image.features import (
    FEATURES,
    METADATA_VERSION,
    UnknownVersion,
    metadata_version_at,
    metadata_version_of,
)
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.update_features import UpdateFeaturesRequest

LOCAL = ("version-mapping", "feature-dependencies")
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def main(name: str, arguments: Sequence[str]) -> int:
    local = next((one for one in arguments if one in LOCAL), None)
    if local is not None:
        from kraftbox.cli.main import main as cli

        return 1 if cli(["storage", *arguments[list(arguments).index(local) :]]) else 0
    options = parser(name, __doc__ or "")
    add_bootstrap(options, controllers=True)
    commands = options.add_subparsers(dest="command", required=True)
    commands.add_parser("describe", allow_abbrev=False)
    for command in ("upgrade", "downgrade", "disable"):
        one = commands.add_parser(command, allow_abbrev=False)
        one.add_argument("--feature", action="append", metavar="NAME[=LEVEL]")
        one.add_argument("--dry-run", action="store_true")
        if command != "disable":
            one.add_argument("--release-version", metavar="RELEASE")
            one.add_argument("--metadata", metavar="RELEASE", help="for metadata.version only")
        if command != "upgrade":
            one.add_argument(
                "--unsafe", action="store_true", help="allow a downgrade that loses metadata"
            )
    given = options.parse_args(arguments)
    if given.command == "describe":
        run(bootstrap_of(given), _describe)
    else:
        wanted = levels(given)
        run(bootstrap_of(given), lambda client: _update(client, given, wanted))
    return 0


def levels(given: argparse.Namespace) -> dict[str, int]:
    """Return the features to change, with their levels. Raises CommandFailed."""
    if given.command == "disable":
        found = dict.fromkeys(given.feature or (), 0)
    else:
        found = _release(given)
        for feature, level in pairs(given.feature, "--feature").items():
            if not level.isdigit():
                raise CommandFailed(f"--feature {feature}={level}: the level must be a number")
            found[feature] = int(level)
    if not found:
        raise CommandFailed(f"{given.command} needs a feature")
    return found


def _release(given: argparse.Namespace) -> dict[str, int]:
    named = given.release_version or given.metadata
    if named is None:
        return {}
    if given.release_version and given.metadata:
        raise CommandFailed("--metadata and --release-version exclude each other")
    try:
        level = metadata_version_of(named).level
    except UnknownVersion as error:
        raise CommandFailed(str(error)) from None
    found = {METADATA_VERSION: level}
    if given.release_version:
        found |= {feature.name: feature.default_level(level) for feature in FEATURES}
    return found


async def _describe(client: ClusterClient) -> None:
    request = ApiVersionsRequest(client_software_name="kraftbox", client_software_version="0")
    reply = await client.request_any(request)
    check(reply.error_code, "features", None)
    for line in described(reply):
        say(line)


def described(reply: ApiVersionsResponse) -> list[str]:
    """Return a line per feature, in the format of Kafka's tool."""
    finalized = {one.name: one.max_version_level for one in reply.finalized_features}
    return [
        f"Feature: {one.name:42}"
        f"SupportedMinVersion: {_level(one.name, one.min_version):17}"
        f"SupportedMaxVersion: {_level(one.name, one.max_version):17}"
        f"FinalizedVersionLevel: {_level(one.name, finalized.get(one.name, 0)):17}"
        f"Epoch: {reply.finalized_features_epoch}"
        for one in sorted(reply.supported_features, key=lambda one: one.name)
    ]


def _level(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    try:
        return metadata_version_at(level).name
    except UnknownVersion:
        return f"UNKNOWN {level}"


async def _update(client: ClusterClient, given: argparse.Namespace, wanted: dict[str, int]) -> None:
    kind = UPGRADE
    if given.command != "upgrade":
        kind = UNSAFE_DOWNGRADE if given.unsafe else SAFE_DOWNGRADE
    updates = [
        UpdateFeaturesRequest.FeatureUpdateKey(
            feature=name, max_version_level=level, upgrade_type=kind
        )
        for name, level in wanted.items()
    ]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=given.dry_run)
    reply = await client.request_any(request)
    check(reply.error_code, f"{given.command} of features", reply.error_message)
    for result in reply.results:
        check(result.error_code, result.feature, result.error_message)
    may = "can be" if given.dry_run else "was"
    for name, level in wanted.items():
        if given.command == "disable":
            say(f"{name} {may} disabled.")
        else:
            say(f"{name} {may} {given.command}d to {level}.")
