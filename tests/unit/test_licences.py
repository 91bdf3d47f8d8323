"""The licence of every package that `pip install kraftbox` installs, by its metadata.

Only the classifiers, the SPDX expression and the licence field are read: a package without any of
them fails, and a person checks it before it gets a line here.
"""

import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement

ASK_FOR_NOTICE = re.compile(
    r"\b(Apache([ -]Software)?([ -](License|2(\.0)?))?|MIT|BSD|[023]-Clause|ISC|PSF(-2\.0)?|"
    r"Python Software Foundation)\b",
    re.IGNORECASE,
)
ASK_FOR_MORE = re.compile(
    r"GPL|Affero|MPL|Mozilla|EUPL|CC-BY|Commercial|Proprietary", re.IGNORECASE
)
KNOWN = {
    # LGPL 2.1 or later, with Google's part under BSD: docs/releases.md has the reason to keep it.
    "crc32c": "LGPL-2.1-or-later",
}


def brought(name, extras=("",), seen=None):
    """Return the packages that a package requires on this machine, directly or indirectly."""
    seen = {} if seen is None else seen
    for text in metadata.requires(name) or ():
        one = Requirement(text)
        if one.name.lower() in seen:
            continue
        if one.marker is None or any(one.marker.evaluate({"extra": each}) for each in extras):
            seen[one.name.lower()] = metadata.metadata(one.name)
            brought(one.name, tuple(one.extras) or ("",), seen)
    return seen


def said(package):
    """Return all licence names in the metadata; of a full licence text only its first line."""
    classifiers = package.get_all("Classifier") or []
    named = [line.rpartition(":: ")[2] for line in classifiers if line.startswith("License ::")]
    field = (package["License"] or "").strip().partition("\n")[0]
    return ", ".join(filter(None, [package["License-Expression"] or "", field, *named]))


PACKAGES = brought("kraftbox")


def test_all_that_is_needed_is_looked_at():
    assert {"uvloop", "msgpack", "crc32c", "typer", "rich", "pygments"} <= set(PACKAGES)


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_licence_requires_notice_only(name):
    licence = said(PACKAGES[name])
    if name in KNOWN:
        assert KNOWN[name] in licence or "LGPL" in licence
        return
    assert ASK_FOR_NOTICE.search(licence), f"{name}: {licence or 'says nothing'}"
    assert not ASK_FOR_MORE.search(licence), f"{name}: {licence}"
