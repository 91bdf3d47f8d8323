"""Small files and texts: checkpoints, properties, quorum state, names; chosen by the first byte."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence

from metalog.quorum.state_file import read_quorum_state
from runtime.config.errors import ConfigError
from runtime.config.listeners import parse_host_ports, parse_voters
from runtime.config.properties import PropertiesError, parse_properties
from runtime.errors import StartupRefused
from storage.files import MemoryFiles
from storage.log import checkpoints
from storage.log.directory import MetaProperties, parse_folder


def _properties(data: bytes) -> None:
    with contextlib.suppress(PropertiesError):
        parse_properties(data.decode("utf-8", "replace"))


def _meta(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        MetaProperties.decode(data)


def _folder(data: bytes) -> None:
    try:
        folder = parse_folder(data.decode("utf-8", "replace"))
    except ValueError:
        return
    assert "/" not in folder.topic and folder.topic not in ("", ".", "..")


def _checkpoint(decode: Callable[[bytes], object]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        with contextlib.suppress(checkpoints.CorruptCheckpoint):
            decode(data)

    return run


def _quorum_state(data: bytes) -> None:
    files = MemoryFiles()
    files.mkdirs("/d")
    file = files.open("/d/quorum-state", create=True)
    file.append(data)
    with contextlib.suppress(StartupRefused):
        read_quorum_state(files, "/d/quorum-state")


def _listeners(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for parse in (lambda: parse_voters([text]), lambda: parse_host_ports("k", [text])):
        with contextlib.suppress(ConfigError):
            parse()


_USES: tuple[tuple[Callable[[bytes], None], Sequence[bytes]], ...] = (
    (_properties, (b"a=b\nc : d\\\n e\n#x\n", b"a=\\u0041\n")),
    (
        _meta,
        (b"cluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\nversion=1\n"
         b"directory.id=4L6g3nShT-eMCtK--X86sw\n",),
    ),
    (_folder, (b"topic-0", b"t.0123456789abcdef0123456789abcdef-delete", b"a-b-12")),
    (_checkpoint(checkpoints.decode_offsets), (b"0\n2\nt 0 5\nu 1 99\n",)),
    (_checkpoint(checkpoints.decode_epochs), (b"0\n2\n0 0\n3 10\n",)),
    (_checkpoint(checkpoints.decode_partition_metadata),
     (b"version: 0\ntopic_id: 4L6g3nShT-eMCtK--X86sw",)),
    (_quorum_state,
     (b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":1}',
      b'{"clusterId":"","leaderId":-1,"leaderEpoch":0,"votedId":1,"appliedOffset":0,'
      b'"currentVoters":[{"voterId":1}],"data_version":0}')),
    (_listeners, (b"1@localhost:9093", b"[::1]:9092", b"1@[::1]:9093")),
)  # fmt: skip


class Texts:
    def seeds(self, rng: random.Random) -> Sequence[bytes]:
        return [bytes((at,)) + seed for at, (_, seeds) in enumerate(_USES) for seed in seeds]

    def run(self, data: bytes) -> None:
        if data:
            use, _ = _USES[data[0] % len(_USES)]
            use(data[1:])

    def close(self) -> None:
        pass


def make() -> Texts:
    return Texts()
