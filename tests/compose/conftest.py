"""The image, built once for the group: these tests need a Docker daemon."""

from __future__ import annotations

import os
import sys

import pytest

from testkit.skips import MAY_BE_MISSING
from tests.compose.docker import REPOSITORY, daemon_answers, run

IMAGE = "kraftbox:test"


@pytest.fixture(scope="session")
def image() -> str:
    """Return the name of the image under test. KRAFTBOX_IMAGE names one that is built already.

    CI sets KRAFTBOX_WITHOUT_DOCKER where the kernel lets no daemon start.
    """
    if os.environ.get("KRAFTBOX_WITHOUT_DOCKER"):
        pytest.skip("a Docker daemon was tried and does not start on this machine")
    if not daemon_answers():
        pytest.skip(f"no Docker daemon answers ({MAY_BE_MISSING})")
    given = os.environ.get("KRAFTBOX_IMAGE")
    if given:
        return given
    environ = {**os.environ, "PYTHON": sys.executable}
    run("sh", str(REPOSITORY / "deploy/build-image.sh"), IMAGE, env=environ, timeout=900)
    return IMAGE
