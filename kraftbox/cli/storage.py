"""`kraftbox storage`: format log directories and describe them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraftbox.cli.output import CommandFailed, JsonFlag, command_group, say, say_json
from runtime.config import ConfigError, NodeConfig

if TYPE_CHECKING:
    from protocol.metadata.user_scram_credential_record import UserScramCredentialRecord

app = command_group("Format and inspect log directories.")

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="server.properties of the node.", exists=True)
]
FeatureOption = Annotated[
    list[str],
    typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="Level of a feature; repeatable."),
]
ReleaseOption = Annotated[
    str | None, typer.Option("--release-version", "-r", help="Kafka release, such as 4.3-IV0.")
]


def features(pairs: list[str]) -> dict[str, int]:
    """Parse `NAME=LEVEL` options into a mapping; raise BadParameter for another form."""
    result = {}
    for pair in pairs:
        name, equals, level = pair.partition("=")
        if not equals or not level.isdigit():
            raise typer.BadParameter(f"expected NAME=LEVEL, got {pair!r}")
        result[name] = int(level)
    return result


@app.command("random-uuid")
def random_uuid(as_json: JsonFlag = False) -> None:
    """Print a new random cluster ID."""
    from protocol.ids import random_uuid as new_uuid
    from protocol.ids import uuid_to_text

    text = uuid_to_text(new_uuid(random.SystemRandom()))
    if as_json:
        say_json({"uuid": text})
        return
    say(text)


@app.command("version-mapping")
def version_mapping(release: ReleaseOption = None, as_json: JsonFlag = False) -> None:
    """Print the feature levels that `format` gives a cluster of a release."""
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
    """Print the feature levels that the given levels depend on."""
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
            raise CommandFailed(f"unknown feature level {name}={level}")
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


ClusterIdOption = Annotated[
    str,
    typer.Option("--cluster-id", "-t", help="Id of the cluster; `random-uuid` prints a new one."),
]
IgnoreFormattedOption = Annotated[
    bool,
    typer.Option("--ignore-formatted", "-g", help="Skip directories that are already formatted."),
]
InitialControllersOption = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY[,...]",
        help="Voters of the new quorum.",
    ),
]


ScramOption = Annotated[
    list[str],
    typer.Option(
        "--add-scram",
        "-S",
        metavar="SCRAM-SHA-256=[name=NAME,password=PASSWORD,iterations=N,salt=SALT]",
        help="SCRAM credential of a user; repeatable. Other users of the machine can see it.",
    ),
]
ScramFileOption = Annotated[
    Path | None,
    typer.Option(
        "--add-scram-file", help="File with a credential of --add-scram in each line.", exists=True
    ),
]


@app.command("format")
def format_storage(
    config_file: ConfigOption,
    cluster_id: ClusterIdOption,
    ignore_formatted: IgnoreFormattedOption = False,
    release: ReleaseOption = None,
    asked: FeatureOption = [],
    standalone: Annotated[
        bool, typer.Option("--standalone", "-s", help="Make this controller the only voter.")
    ] = False,
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", "-N", help="Join an existing quorum.")
    ] = False,
    initial_controllers: InitialControllersOption = None,
    add_scram: ScramOption = [],
    scram_file: ScramFileOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Format the log directories of a node.

    Formatted directories are refused and stay unchanged.
    """
    from metalog.format import FormatRefused, FormatRequest, format_directories
    from metalog.image.features import METADATA_VERSION, metadata_version_at
    from protocol.ids import uuid_to_text
    from runtime.clock import SystemClock
    from storage.files import RealFiles
    from storage.log.errors import BadLogDirectory

    request = FormatRequest.from_node_config(_node_config(config_file), cluster_id)._replace(
        ignore_formatted=ignore_formatted,
        release_version=release,
        features=features(asked),
        standalone=standalone,
        no_initial_controllers=no_initial_controllers,
        initial_controllers=initial_controllers,
        credentials=_credentials(add_scram, scram_file),
    )
    files = RealFiles()
    try:
        rng = random.Random(random.SystemRandom().getrandbits(128))
        result = format_directories(request, files=files, clock=SystemClock(), rng=rng)
    except (FormatRefused, BadLogDirectory) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}") from None
    finally:
        files.close()
    if as_json:
        say_json(
            {
                "formatted": {d: uuid_to_text(i) for d, i in result.formatted.items()},
                "skipped": list(result.skipped),
                "features": dict(result.features),
                "kraftVersion": result.kraft_version,
            }
        )
        return
    version = metadata_version_at(result.features[METADATA_VERSION]).name
    for directory in result.formatted:
        say(f"Formatted {directory} with {METADATA_VERSION} {version}.")
    for directory in result.skipped:
        say(f"{directory} is already formatted; skipped.")


@app.command()
def info(config_file: ConfigOption, as_json: JsonFlag = False) -> None:
    """Print cluster, node and feature levels of the log directories.

    Exit code 1 if one is not formatted, or if the first records of its metadata are damaged.
    """
    from metalog.finalised import finalised_features
    from protocol.ids import uuid_to_text
    from runtime.errors import StartupRefused
    from storage.files import RealFiles
    from storage.log.directory import read_meta
    from storage.log.errors import BadLogDirectory

    config = _node_config(config_file)
    files = RealFiles()
    found: list[dict[str, object]] = []
    problems = []
    for directory in dict.fromkeys([config.log_dir, config.metadata_log_dir]):
        try:
            meta = read_meta(files, directory)
        except (BadLogDirectory, OSError) as error:
            problems.append(str(error))
            continue
        if meta is None:
            problems.append(f"{directory} is not formatted")
            continue
        if meta.node_id != config.node_id:
            problems.append(
                f"{directory} belongs to node {meta.node_id}, not node {config.node_id}"
            )
        found.append(
            {
                "directory": directory,
                "clusterId": meta.cluster_id,
                "nodeId": meta.node_id,
                "directoryId": uuid_to_text(meta.directory_id) if meta.directory_id else None,
            }
        )
        if config.is_controller and directory == config.metadata_log_dir:
            try:
                found[-1]["features"] = finalised_features(files, directory)
            except StartupRefused as error:
                problems.append(str(error))
    files.close()
    if as_json:
        say_json({"directories": found, "problems": problems})
    else:
        for entry in found:
            say(" ".join(f"{name}={value}" for name, value in entry.items()))
    if problems:
        raise CommandFailed(*problems)


def _credentials(given: list[str], file: Path | None) -> tuple[UserScramCredentialRecord, ...]:
    """Return the records of all credentials; an error names the place, never a value."""
    from metalog.scram import BadCredential, parse_credential

    texts = [("--add-scram", text) for text in given]
    if file is not None:
        lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        texts += [(f"{file}:{number}", line) for number, line in lines if line.strip()]
    records = []
    for place, text in texts:
        try:
            records.append(parse_credential(text, random.SystemRandom()))
        except BadCredential as error:
            raise CommandFailed(f"{place}: {error}") from None
    return tuple(records)


def _node_config(path: Path) -> NodeConfig:
    from runtime.config.properties import PropertiesError, parse_properties

    try:
        return NodeConfig.parse(parse_properties(path.read_text(encoding="utf-8")))
    except (ConfigError, PropertiesError, UnicodeDecodeError) as error:
        raise CommandFailed(*(f"{path}: {one}" for one in str(error).split("\n"))) from None
