"""`kraftbox storage`: format log directories and say what they hold."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated

import typer

from kraftbox.cli.output import CommandFailed, JsonFlag, say, say_json

app = typer.Typer(help="Format log directories and look at them.", no_args_is_help=True)

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The node's server.properties.", exists=True)
]
FeatureOption = Annotated[
    list[str], typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="May be repeated.")
]
ReleaseOption = Annotated[
    str | None, typer.Option("--release-version", "-r", help="Kafka release, such as 4.3-IV0.")
]


def features(pairs: list[str]) -> dict[str, int]:
    """`NAME=LEVEL` options as a mapping; a usage error otherwise."""
    result = {}
    for pair in pairs:
        name, equals, level = pair.partition("=")
        if not equals or not level.isdigit():
            raise typer.BadParameter(f"{pair!r} is not NAME=LEVEL")
        result[name] = int(level)
    return result


@app.command("random-uuid")
def random_uuid(as_json: JsonFlag = False) -> None:
    """Print a new cluster id."""
    from protocol.ids import random_uuid as new_uuid
    from protocol.ids import uuid_to_text

    text = uuid_to_text(new_uuid(random.SystemRandom()))
    if as_json:
        say_json({"uuid": text})
        return
    say(text)


@app.command("version-mapping")
def version_mapping(release: ReleaseOption = None, as_json: JsonFlag = False) -> None:
    """Print the feature levels that a cluster of a release is formatted with."""
    from metalog.image.features import (
        FEATURES,
        LATEST_PRODUCTION_METADATA_VERSION,
        METADATA_VERSION,
        UnknownVersion,
        metadata_version_of,
    )

    try:
        version = (
            LATEST_PRODUCTION_METADATA_VERSION if release is None else metadata_version_of(release)
        )
    except UnknownVersion as error:
        raise CommandFailed(str(error)) from None
    levels = {feature.name: feature.default_level(version.level) for feature in FEATURES}
    if as_json:
        say_json({METADATA_VERSION: version.level, "release": version.name, **levels})
        return
    say(f"{METADATA_VERSION}={version.level} ({version.name})")
    for name, level in levels.items():
        say(f"{name}={level}")


@app.command("feature-dependencies")
def feature_dependencies(wanted: FeatureOption, as_json: JsonFlag = False) -> None:
    """Print what feature levels depend on."""
    from metalog.image.features import (
        FEATURES_BY_NAME,
        METADATA_VERSION,
        UnknownVersion,
        metadata_version_at,
    )

    found: dict[str, dict[str, int]] = {}
    for name, level in features(wanted).items():
        if name == METADATA_VERSION:
            try:
                metadata_version_at(level)
            except UnknownVersion as error:
                raise CommandFailed(str(error)) from None
            found[name] = {}
            continue
        feature = FEATURES_BY_NAME.get(name)
        if feature is None or level > feature.max_level:
            raise CommandFailed(f"{name}={level} is not known")
        found[name] = dict(feature.needs.get(level, {}))
    if as_json:
        say_json(found)
        return
    for name, level in features(wanted).items():
        needs = found[name]
        if not needs:
            say(f"{name}={level} has no dependencies")
            continue
        say(f"{name}={level} requires:")
        for other, least in needs.items():
            say(f"    {other}={least}")
