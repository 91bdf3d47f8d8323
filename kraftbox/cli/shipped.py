"""Files that an installation contains besides its code: alert rules and dashboards.

In a wheel they are below `kraftbox/_root`, in a working copy at its top.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import kraftbox

RULES = "deploy/prometheus/rules.yml"
DASHBOARDS = "deploy/grafana/dashboards"
DOCS = "docs/"
"""The begin of relative links to the documentation, as in `runbook_url` of each alert."""


def root() -> Path:
    """Return the folder that has the shipped files at the paths of the repository."""
    package = Path(kraftbox.__file__).resolve().parent
    inside = package / "_root"
    return inside if inside.is_dir() else package.parent


def rules(docs_url: str | None) -> str:
    """Return the alert rules of Prometheus; `docs_url` replaces the begin of links to pages."""
    text = (root() / RULES).read_text(encoding="utf-8")
    if docs_url is None:
        return text
    return text.replace(f"runbook_url: {DOCS}", f"runbook_url: {docs_url.rstrip('/')}/")


def documentation() -> str | None:
    """Return the address of the installed version's pages, None for a build without one."""
    try:
        urls = metadata.metadata("kraftbox").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return None
    known = dict(url.split(", ", 1) for url in urls if ", " in url)
    return known.get("Documentation")


def dashboards() -> dict[str, str]:
    """Return the dashboards of Grafana as JSON by name, sorted."""
    files = sorted((root() / DASHBOARDS).glob("*.json"))
    return {path.stem: path.read_text(encoding="utf-8") for path in files}
