"""CRC-32C, loaded without the start-up code of its package."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec, PathFinder

import crc32c as package
import pytest

from protocol import checksum

CHECK = 0xE3069283
"""The CRC of b"123456789": RFC 3720 and every table of CRCs."""


def test_checksum_equals_that_of_package() -> None:
    assert checksum.crc32c(b"123456789") == CHECK == package.crc32c(b"123456789")
    assert checksum.crc32c(memoryview(b"6789"), checksum.crc32c(b"12345")) == CHECK


@pytest.mark.parametrize("gone", [None, ModuleSpec("crc32c._crc32c", None)])
def test_extension_in_another_place_is_not_found(
    monkeypatch: pytest.MonkeyPatch, gone: ModuleSpec | None
) -> None:
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_: gone)
    assert checksum._extension() is None


def test_checksum_with_extension_elsewhere_imports_package() -> None:
    code = (
        "import sys, importlib.machinery as m; found = m.PathFinder.find_spec\n"
        "m.PathFinder.find_spec = lambda name, *more: "
        "None if name == 'crc32c._crc32c' and 'crc32c' not in sys.modules else found(name, *more)\n"
        "from protocol.checksum import crc32c\n"
        "assert 'crc32c' in sys.modules\n"
        "print(crc32c(b'123456789'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) == CHECK
