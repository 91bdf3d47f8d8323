"""Write typed message modules from the definitions inside Kafka's jars.

    python tools/generate_messages.py FOLDER_OF_JARS [--force]

The definitions are facts (names, types, versions, tags); their sentences are not copied. Modules
are written once and maintained by hand from then on: headers and comments are ours. Without --force
an existing module stays as it is; the drift test fails when a module no longer agrees with the
jars.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
JARS = (
    "kafka-clients",
    "kafka-metadata",
    "kafka-raft",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-storage",
)
CONTROL_TYPES = {
    "EndTxnMarker": None,  # its type (abort or commit) is the decision itself
    "LeaderChangeMessage": 2,
    "SnapshotHeaderRecord": 3,
    "SnapshotFooterRecord": 4,
    "KRaftVersionRecord": 5,
    "VotersRecord": 6,
}
SCALARS = {
    "int8": ("int8", "int", "0"),
    "int16": ("int16", "int", "0"),
    "uint16": ("uint16", "int", "0"),
    "int32": ("int32", "int", "0"),
    "uint32": ("uint32", "int", "0"),
    "int64": ("int64", "int", "0"),
    "float64": ("float64", "float", "0.0"),
    "bool": ("boolean", "bool", "False"),
    "uuid": ("uuid", "bytes", "ZERO_UUID"),
    "string": ("string", "str", '""'),
    "bytes": ("bytes_", "bytes", 'b""'),
    "records": ("records", "Records", 'b""'),
}
_COMMENT = re.compile(r'^\s*//.*$|//[^"\n]*$', re.MULTILINE)


def parse_definition(text: str) -> dict[str, Any]:
    """Parse one definition: JSON with // comments."""
    parsed: dict[str, Any] = json.loads(_COMMENT.sub("", text))
    return parsed


def definitions(jars: Path) -> Iterator[dict[str, Any]]:
    """Yield every message definition, with the jar's name under "jar"."""
    for prefix in JARS:
        [jar] = [p for p in jars.glob(f"{prefix}-[0-9]*.jar") if "sources" not in p.name]
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(archive.namelist()):
                if re.search(r"(^|/)(message|metadata)/\w+\.json$", name):
                    yield {"jar": prefix, **parse_definition(archive.read(name).decode())}


def snake(name: str) -> str:
    """ThrottleTimeMs -> throttle_time_ms, KRaftVersion -> kraft_version."""
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def default_of(spec: dict[str, Any], kind: str) -> str:
    """Return the default as Python source. A bare JSON null means no default in Kafka's
    definitions."""
    default = spec.get("default")
    if default is None:
        default = ""
    if default == "null":
        return "None"
    if default != "" and kind == "bool":
        return "True" if str(default).lower() == "true" else "False"
    elif default != "" and kind in SCALARS and kind not in ("string", "uuid", "bytes"):
        return str(int(str(default), 0))
    elif default != "":
        raise ValueError(f"no rule for default {default!r} of {spec['name']}")
    return SCALARS[kind][2] if kind in SCALARS else "FRESH"


@dataclass
class Writer:
    """Renders one definition as a class."""

    message: dict[str, Any]

    def kind_and_type(self, kind: str, owner: str) -> tuple[str, str]:
        if kind.startswith("[]"):
            inner = kind[2:]
            if inner in SCALARS:
                name, python, _ = SCALARS[inner]
                return f"array({name})", f"list[{python}]"
            return f'array("{inner}")', f"list[{owner}{inner}]"
        if kind in SCALARS:
            name, python, _ = SCALARS[kind]
            return name, python
        return f'struct("{kind}")', f"{owner}{kind}"

    def field(self, spec: dict[str, Any], owner: str) -> str:
        kind = spec["type"]
        expression, python = self.kind_and_type(kind, owner)
        versions = spec.get("versions") or spec["taggedVersions"]
        if spec.get("taggedVersions", versions) != versions:
            raise ValueError(f"{spec['name']} is tagged in a part of its versions")
        arguments = [expression, f'"{versions}"']
        if spec.get("nullableVersions", "none") != "none":
            python += " | None"
            arguments.append(f'nullable="{spec["nullableVersions"]}"')
        if "tag" in spec:
            arguments.append(f"tag={spec['tag']}")
        if spec.get("ignorable") in (True, "true"):
            arguments.append("ignorable=True")
        if "flexibleVersions" in spec:
            arguments.append(f'flexible="{spec["flexibleVersions"]}"')
        arguments.append(f"default={default_of(spec, kind)}")
        return f"{snake(spec['name'])}: {python} = field({', '.join(arguments)})"

    def structs(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        pending = list(self.message["fields"])
        for common in self.message.get("commonStructs", []):
            yield common["name"], common["fields"]
            pending += common["fields"]
        while pending:
            spec = pending.pop(0)
            if spec.get("fields"):
                yield spec["type"].removeprefix("[]"), spec["fields"]
                pending = spec["fields"] + pending

    def facts(self) -> tuple[str, list[str]]:
        m = self.message
        facts = [f'versions="{m["validVersions"]}"']
        if m["flexibleVersions"] != "none":
            facts.append(f'flexible="{m["flexibleVersions"]}"')
        kind, name = m["type"], m["name"]
        if kind == "request":
            base = f"Request[{name.removesuffix('Request')}Response]"
            facts.insert(0, f"api_key={m['apiKey']}")
            listeners = ", ".join(f'"{item}"' for item in m.get("listeners", []))
            comma = "," if len(m.get("listeners", [])) == 1 else ""
            facts.append(f"listeners=({listeners}{comma})")
            if m.get("latestVersionUnstable"):
                facts.append(f'unstable="{m["validVersions"].rpartition("-")[2]}"')
        elif kind == "response":
            base = "Response"
            facts.insert(0, f"api_key={m['apiKey']}")
        elif kind == "metadata":
            base = "MetadataRecord"
            facts.insert(0, f"record_type={m['apiKey']}")
        elif kind.startswith("coordinator"):
            base = "CoordinatorRecord"
            facts.insert(0, f"record_type={m['apiKey']}")
        elif name in CONTROL_TYPES:
            base = "ControlRecord"
            if CONTROL_TYPES[name] is not None:
                facts.insert(0, f"control_type={CONTROL_TYPES[name]}")
        else:
            base = "Message"
        return base, facts

    def render(self) -> str:
        name = self.message["name"]
        base, facts = self.facts()
        lines = [f"class {name}({base}, {', '.join(facts)}):"]
        lines += ["    " + self.field(spec, "") for spec in self.message["fields"]]
        if not self.message["fields"]:
            lines.append("    pass")
        for struct_name, specs in self.structs():
            lines += ["", f"    class {struct_name}(Struct):"]
            lines += ["        " + self.field(spec, f"{name}.") for spec in specs]
        return "\n".join(lines)


def place(message: dict[str, Any]) -> str | None:
    """The module of a message, as a path below protocol/."""
    name, kind = message["name"], message["type"]
    if message["validVersions"] == "none":
        return None
    if kind in ("request", "response"):
        return f"messages/{snake(name.removesuffix('Request').removesuffix('Response'))}.py"
    if kind == "header":
        return "header_schemas.py"
    if kind == "metadata" and message["jar"] == "kafka-metadata":
        return f"metadata/{snake(name)}.py"
    if name in CONTROL_TYPES or name == "ControlRecordTypeSchema":
        return f"control/{snake(name)}.py"
    if kind.startswith("coordinator"):
        return f"internal/{snake(name.removesuffix('Key').removesuffix('Value'))}.py"
    return f"internal/{snake(name)}.py"


def header(messages: list[dict[str, Any]]) -> str:
    first = messages[0]
    versions = first["validVersions"]
    plural = "s" if "-" in versions else ""
    if first["type"] in ("request", "response"):
        api = first["name"].removesuffix("Request").removesuffix("Response")
        unstable = ""
        if any(m.get("latestVersionUnstable") for m in messages):
            unstable = f"; version {versions.rpartition('-')[2]} is unstable"
        return f"{api} (API key {first['apiKey']}), version{plural} {versions}{unstable}."
    if first["type"] == "metadata":
        return f"{first['name']} (record type {first['apiKey']}), version{plural} {versions}."
    last = messages[-1]
    plural = "s" if "-" in last["validVersions"] else ""
    if len(messages) == 2 and last["type"] == "coordinator-value":
        name = last["name"].removesuffix("Value")
        return (
            f"{name}, key and value (record type {last['apiKey']}); "
            f"value version{plural} {last['validVersions']}."
        )
    names = " and ".join(m["name"] for m in messages)
    return f"{names}, version{plural} {last['validVersions']}."


def module(messages: list[dict[str, Any]]) -> str:
    body = "\n\n\n".join(Writer(m).render() for m in messages)
    used = set(re.findall(r"\w+", re.sub(r'"[^"]*"', "", body)))
    names = {n for n, _, _ in SCALARS.values()} | {
        "FRESH", "ControlRecord", "CoordinatorRecord", "Message", "MetadataRecord", "Records",
        "Request", "Response", "Struct", "array", "field", "struct",
    }  # fmt: skip
    imports = f"from protocol.schema import {', '.join(sorted(names & used))}\n"
    if "ZERO_UUID" in used:
        imports = "from protocol.ids import ZERO_UUID\n" + imports
    return (
        f'"""{header(messages)}"""\n\nfrom __future__ import annotations\n\n{imports}\n\n{body}\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jars", type=Path)
    parser.add_argument("--force", action="store_true", help="overwrite existing modules")
    options = parser.parse_args()
    modules: dict[str, list[dict[str, Any]]] = {}
    for message in definitions(options.jars):
        path = place(message)
        if path is not None:
            modules.setdefault(path, []).append(message)
    written = []
    for path, messages in modules.items():
        messages.sort(key=lambda m: m["type"] == "request")  # the request names its response
        target = ROOT / "protocol" / path
        if target.exists() and not options.force:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(module(messages))
        written.append(str(target))
    if written:
        ruff = [sys.executable, "-m", "ruff"]
        subprocess.run([*ruff, "check", "-q", "--fix", "--select", "I", *written], check=True)
        subprocess.run([*ruff, "format", "-q", *written], check=True)
    print(f"{len(written)} modules written, {len(modules) - len(written)} left alone")


if __name__ == "__main__":
    main()
