"""Commands of docs/operations.md, run with Kafka's own tools."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from testkit.kafka.nodes import run_kafka_tool

PAGE = Path(__file__).parents[2] / "docs/operations.md"
TOOLS = "org.apache.kafka.tools."
CLASSES = {
    "kafka-cluster": f"{TOOLS}ClusterTool",
    "kafka-features": f"{TOOLS}FeatureCommand",
    "kafka-topics": f"{TOOLS}TopicCommand",
}


def commands(heading: str) -> list[str]:
    """Return the lines of the section's code blocks, continued lines joined.

    Raises:
        ValueError: the page has no such heading.
    """
    mark = f"\n## {heading}\n"
    text = PAGE.read_text()
    if mark not in text:
        raise ValueError(f"{PAGE.name} has no section {heading!r}")
    section = text.partition(mark)[2].partition("\n## ")[0]
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines]


def run(command: str, bootstrap: str, **values: str) -> subprocess.CompletedProcess[str]:
    """Run a command with `bootstrap` for HOST:PORT, and with the other values for their names."""
    for name, value in {"HOST:PORT": bootstrap, **values}.items():
        command = command.replace(name, value)
    script, *arguments = shlex.split(command)
    return run_kafka_tool(CLASSES[script], *arguments)
