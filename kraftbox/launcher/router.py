"""Shell: The network of an isolated local cluster (`up --isolate`; Linux, root).

Every node runs in a network namespace whose only exit is a tun device. One process carries the
packets between those devices and the host's. It can cut or slow every directed link, and lose,
duplicate or reorder its packets. This acts on the whole node and below TCP: a cut link is silent,
as a real one is. On the host it adds one device, `kbxN`, and the namespaces `kbxN-ID`; both are
removed with the cluster.

The supervisor starts the router before the nodes. The router writes the line `ready`, listens on
the socket `network` in the cluster's directory, and ends at the end of its standard input.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from kraftbox.launcher import frames
from kraftbox.launcher.addresses import HOST_OCTET, NAMESPACES, Network
from kraftbox.launcher.callers import Caller, Callers, RequestRefused
from kraftbox.launcher.interpreter import own_command
from kraftbox.launcher.journal import Journal
from kraftbox.launcher.links import LinkRule, Links, RuleInvalid, Underway, rules_of
from kraftbox.launcher.peers import command_of
from kraftbox.launcher.place import ClusterPlace
from runtime.errors import StartupRefused

SOCKET = "network"
MTU = 65_000
REQUEST_MS_MAX = 5_000
END_MS_MAX = 5_000
READS_MAX = 64
RULES_MAX = 4_000
"""Maximum rules per message, so that a frame holds them."""
JOURNALED_MAX = 50
"""Maximum links that are not whole per entry of the journal."""
IPV4_HEADER_BYTES = 20
_TUNSETIFF = 0x400454CA
_IFF_TUN_NO_PI = 0x1001
_IFREQ = struct.Struct("16sH22x")


class NetworkError(Exception):
    """The network cannot be created or changed; the message has the reason."""


def is_possible() -> bool:
    """Return whether this process may create such a network; it creates and removes a small one."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    name = f"kbx-probe-{os.getpid()}"
    try:
        os.close(_tun(f"kbxp{os.getpid()}"))
        _ip(f"netns add {name}")
        _ip("link set lo up", namespace=name)
        _ip(f"netns del {name}")
    except (OSError, NetworkError):
        return False
    return True


# --- the starter's and the callers' side ------------------------------------------------------


class Router:
    """The router process, as seen by the supervisor that starts it."""

    def __init__(
        self, place: ClusterPlace, network: Network, node_ids: Sequence[int], log_fd: int
    ) -> None:
        """Start the process and wait until it is ready. Raises StartupRefused."""
        if sys.platform != "linux" or os.geteuid() != 0:
            raise StartupRefused("--isolate needs Linux and root, to create network namespaces")
        ids = ",".join(map(str, node_ids))
        command = own_command("_router", str(place.root), str(network.number), ids)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_fd,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        if line != "ready":
            self._process.wait()
            raise StartupRefused(f"--isolate: {line or 'the router did not start'}")

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(END_MS_MAX / 1000)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class NetworkControl:
    """Client of the router: reads and sets the links of a cluster's network.

    Raises NetworkError.
    """

    def __init__(self, place: ClusterPlace) -> None:
        self._path = str(place.root / SOCKET)

    def set_links(self, rules: Sequence[LinkRule]) -> None:
        """Replace all rules: links that `rules` does not name become whole."""
        self._ask({"rules": _packed(rules[:RULES_MAX])})
        if len(rules) > RULES_MAX:
            self.change_links(rules[RULES_MAX:])

    def change_links(self, rules: Sequence[LinkRule]) -> None:
        """Change the links that `rules` names; all others keep their rules."""
        for at in range(0, len(rules), RULES_MAX):
            self._ask({"change": _packed(rules[at : at + RULES_MAX])})

    def links(self) -> list[LinkRule]:
        """Return every link that is not whole."""
        found: list[LinkRule] = []
        while True:
            page = self._ask({"from": len(found)})
            try:
                found += rules_of(page["rules"])
                if not page["rules"] or len(found) >= page["count"]:
                    return found
            except (KeyError, TypeError, RuleInvalid) as error:
                raise NetworkError(f"the cluster's network: invalid answer: {error}") from None

    def _ask(self, message: frames.Message) -> dict[str, Any]:
        """Send a request.

        Return the answer, which has at most RULES_MAX links that are not whole.
        """
        decoder = frames.Decoder()
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(REQUEST_MS_MAX / 1000)
                with _short(self._path) as path:
                    connection.connect(path)
                connection.sendall(frames.encode(message))
                while data := connection.recv(1 << 16):
                    for answer in decoder.feed(data):
                        if "error" in answer:
                            raise NetworkError(f"the cluster's network: {answer['error']}")
                        return answer
        except (OSError, frames.FrameError) as error:
            raise NetworkError(f"the cluster's network does not answer: {error}") from None
        raise NetworkError("the cluster's network refused the rules")


def _packed(rules: Sequence[LinkRule]) -> list[list[object]]:
    return [[one.source, one.target, list(one.link)] for one in rules]


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """Yield a path of the socket that fits into a socket address."""
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{os.path.basename(path)}"
    finally:
        os.close(fd)


# --- the router's process -------------------------------------------------------------------------


class _Devices:
    """The tun devices, by end."""

    def __init__(self, network: Network, node_ids: Sequence[int]) -> None:
        """Create the devices and namespaces. Raises OSError, NetworkError."""
        self.fds: dict[int, int] = {}
        self._namespaces: list[str] = []
        try:
            self._make(network, node_ids)
        except BaseException:
            self.close()
            raise

    def _make(self, network: Network, node_ids: Sequence[int]) -> None:
        self.fds[0] = _tun(network.device)
        _ip(
            f"addr add {network.host}/24 dev {network.device}",
            f"link set {network.device} mtu {MTU} up",
        )
        for node_id in node_ids:
            name = network.namespace(node_id)
            if (NAMESPACES / name).exists():
                _ip(f"netns del {name}")
            _ip(f"netns add {name}")
            self._namespaces.append(name)
            device = f"{network.device}-{node_id}"
            self.fds[node_id] = _tun(device)
            _ip(f"link set {device} netns {name}")
            _ip(
                f"addr add {network.address(node_id)}/24 dev {device}",
                f"link set {device} mtu {MTU} up",
                "link set lo up",
                namespace=name,
            )

    def close(self) -> None:
        for fd in self.fds.values():
            os.close(fd)
        self.fds.clear()
        for name in self._namespaces:
            with contextlib.suppress(NetworkError):
                _ip(f"netns del {name}")


def _tun(name: str) -> int:
    import fcntl

    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, _IFREQ.pack(name.encode(), _IFF_TUN_NO_PI))
    except OSError:
        os.close(fd)
        raise
    return fd


def _ip(*lines: str, namespace: str | None = None) -> None:
    """Run commands of iproute2. Raises NetworkError if one fails."""
    where = [] if namespace is None else ["-n", namespace]
    batch = ["ip", *where, "-batch", "-"]
    try:
        done = subprocess.run(
            batch, input="\n".join(lines), capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise NetworkError("the command `ip` (iproute2) is missing") from None
    if done.returncode:
        raise NetworkError(f"ip {lines[0]}: {done.stderr.strip()}")


class _Carrier:
    """Forwards packets from each device to the target's, delayed as the links require."""

    def __init__(self, devices: _Devices, links: Links) -> None:
        self._fds = devices.fds
        self._links = links
        self._underway = Underway()

    def read(self, source: int) -> None:
        """Read and forward the packets that have arrived from one end."""
        fd = self._fds[source]
        for _ in range(READS_MAX):
            try:
                packet = os.read(fd, MTU + 100)
            except OSError:
                return
            # Forward only IPv4; the kernel's own IPv6 packets have no target here.
            if len(packet) < IPV4_HEADER_BYTES or packet[0] >> 4 != 4:
                continue
            last = packet[19]
            target = 0 if last == HOST_OCTET else last
            if self._links.is_whole(source, target):
                self._write(target, packet)
                continue
            now_ms = time.monotonic() * 1000.0
            for at_ms in self._links.arrivals(source, target, len(packet), now_ms):
                self._underway.add(at_ms, target, packet)
        self.deliver()

    def deliver(self) -> None:
        for target, packet in self._underway.due(time.monotonic() * 1000.0):
            self._write(target, packet)

    def _write(self, target: int, packet: bytes) -> None:
        fd = self._fds.get(target)
        if fd is not None:
            # A full queue drops packets, as on a real network.
            with contextlib.suppress(OSError):
                os.write(fd, packet)

    def timeout_s(self) -> float | None:
        next_ms = self._underway.next_ms
        return None if next_ms is None else max(0.0, next_ms / 1000.0 - time.monotonic())


def main(arguments: Sequence[str]) -> int:
    """Run `_router DIR NUMBER ID,ID,...`, which the supervisor starts with the cluster."""
    root, number, ids = arguments
    try:
        devices = _Devices(Network(int(number)), [int(one) for one in ids.split(",")])
    except (OSError, NetworkError) as error:
        os.write(1, f"{error}\n".encode())
        return 1
    links = Links(random.Random())
    carrier = _Carrier(devices, links)
    listener = socket.socket(socket.AF_UNIX)
    path = f"{root}/{SOCKET}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with _short(path) as name:
        listener.bind(name)
    os.chmod(path, 0o600)
    listener.listen(8)
    selector = selectors.DefaultSelector()
    for end, fd in devices.fds.items():
        selector.register(fd, selectors.EVENT_READ, partial(carrier.read, end))
    callers = Callers(selector, listener, partial(journaled_answer, Journal(root), links))
    selector.register(0, selectors.EVENT_READ, None)
    os.write(1, b"ready\n")
    os.close(1)
    try:
        while True:
            for key, _ in selector.select(carrier.timeout_s()):
                if key.data is not None:
                    key.data()
                elif not os.read(0, 4096):
                    return 0
            carrier.deliver()
    finally:
        callers.close()
        listener.close()
        os.unlink(path)
        devices.close()


def journaled_answer(
    journal: Journal, links: Links, caller: Caller, request: dict[str, Any]
) -> frames.Message:
    """Answer a request; write an entry of the journal if it changed links. Raises
    RequestRefused."""
    before = links.rules
    found = answer(links, caller, request)
    if links.rules != before:
        rules = [[rule.source, rule.target, *rule.link] for rule in links.rules[:JOURNALED_MAX]]
        journal.note("links", rules=rules, by=command_of(caller.connection))
    return found


def answer(links: Links, _: Caller, request: dict[str, Any]) -> frames.Message:
    """Apply a request's changes to the links and return a page of them. Raises RequestRefused."""
    first = request.get("from", 0)
    if type(first) is not int or first < 0:
        raise RequestRefused(f"from {first!r:.80}: expected an integer of at least 0")
    try:
        whole = rules_of(request["rules"]) if "rules" in request else None
        changed = rules_of(request.get("change", []))
    except RuleInvalid as error:
        raise RequestRefused(str(error)) from None
    if whole is not None:
        links.set(whole)
    links.change(changed)
    rules = links.rules
    return {"rules": _packed(rules[first : first + RULES_MAX]), "count": len(rules)}
