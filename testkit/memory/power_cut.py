"""A power cut in the middle of a file operation."""

from __future__ import annotations

import copy
import random
from typing import Any

from storage.files import Files, LossyFiles


class PowerCut(BaseException):
    """Not an Exception, so that no handler in between swallows it."""


def after_power_cut(files: LossyFiles, tear: random.Random | None = None) -> Files:
    """Return the disk as a power cut at this moment would leave it; `files` stays unharmed.

    So one life shows the state after a cut at each of its operations: called by `on_op`, this costs
    a copy, while a new life up to each operation would cost the whole life.
    """
    own = vars(files)
    # Observers, lock holders and waiting workers belong to this machine, not to the copy.
    memo: dict[int, Any] = {id(own["on_op"]): None, id(own["_locks"]): [], id(own["_working"]): {}}
    twin = copy.deepcopy(files, memo)
    twin.crash(tear)
    return twin.backing
