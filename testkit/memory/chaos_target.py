"""A target of chaos runs that records the actions on it."""

from __future__ import annotations

from collections.abc import Sequence

from kraftbox.chaos.target import Ability, TargetError, TargetNode
from kraftbox.launcher.links import LinkRule


class Target:
    """Three brokers that record actions. `refuses` names actions that fail, as "action node"."""

    bootstrap = [("localhost", 1)]
    abilities = frozenset(Ability)
    directories: dict[int, object] = {}

    def __init__(self, *refuses: str) -> None:
        self.refuses = refuses
        self.done: list[str] = []
        self.rules: Sequence[LinkRule] = ()

    async def members(self) -> list[TargetNode]:
        return [TargetNode(node_id, True, node_id == 1, True, None) for node_id in (1, 2, 3)]

    async def act(self, action: str, node_id: int) -> None:
        self.done.append(f"{action} {node_id}")
        if f"{action} {node_id}" in self.refuses:
            raise TargetError("no")

    async def empty_disk(self, node_id: int) -> None:
        await self.act("empty", node_id)

    async def set_links(self, rules: Sequence[LinkRule]) -> None:
        self.rules = rules

    async def heal(self) -> None:
        self.rules = ()
        self.done.append("heal")
