"""A power cut in the middle of a file operation."""

from __future__ import annotations

import copy
import random
from typing import Any

from storage.files import Files, LossyFiles


class PowerCut(BaseException):
    """Not an Exception, so that nothing in between swallows it."""


def after_power_cut(files: LossyFiles, tear: random.Random | None = None) -> Files:
    """The disk as a power cut at this moment would leave it; `files` goes on unharmed.

    So one life shows what is left after a cut at each of its operations: asked by `on_op`, it costs
    a copy where to live until there again would cost the whole life.
    """
    own = vars(files)
    # Who looks on, holds a lock or waits for a worker does so on this machine.
    memo: dict[int, Any] = {id(own["on_op"]): None, id(own["_locks"]): [], id(own["_working"]): {}}
    twin = copy.deepcopy(files, memo)
    twin.crash(tear)
    return twin.backing
