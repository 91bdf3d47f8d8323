"""Check of a commit message: the subject is one imperative change of at most 72 characters.

Usage: python scripts/commit_subject.py FILE (the message file that git passes to a hook)
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

SUBJECT_MAX: Final = 72
_GENERATED = re.compile(r"(Merge|Revert|fixup!|squash!|amend!) ")
_RELATIVE = re.compile(r"(What|Who|Whoever|Whether|Where|Which|How|That)\b")
_FINITE = re.compile(r"(A|An|The|It|They|This|These|Those|There)\b")


def subject_of(message: str) -> str:
    """Return the first non-empty line that is not a comment; empty if there is no such line."""
    lines = (line.strip() for line in message.splitlines() if not line.startswith("#"))
    return next((line for line in lines if line), "")


def problems(subject: str) -> list[str]:
    """Return the subject's violations of the commit rules; empty for a valid subject."""
    if _GENERATED.match(subject):
        return []
    found = []
    change = subject.split(": ", 1)[-1]
    if not subject:
        found.append("the subject is empty")
    if len(subject) > SUBJECT_MAX:
        found.append(
            f"the subject has {len(subject)} characters, at most {SUBJECT_MAX} are allowed"
        )
    if ";" in subject:
        found.append("the subject names several changes: make several commits")
    if subject.endswith("."):
        found.append("the subject ends with a full stop")
    if _RELATIVE.match(change) or _FINITE.match(change):
        found.append(f"the subject must be an imperative, such as 'log: Read ...', not {change!r}")
    elif change and not change[0].isupper():
        found.append(f"the change must begin with a capital letter, not {change!r}")
    return found


def main() -> int:
    found = problems(subject_of(Path(sys.argv[1]).read_text()))
    for problem in found:
        print(f"commit message: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
