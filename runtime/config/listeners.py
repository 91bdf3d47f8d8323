"""Listeners: `NAME://host:port`, their security protocols, and their roles.

A listener in `controller.listener.names` belongs to the controller, every other to the broker. As
in Kafka, the names in `listeners`, `advertised.listeners`, the map and `inter.broker.listener.name`
are converted to upper case. The names in `controller.listener.names` and `early.start.listeners`
are compared unchanged.

A name that is itself a security protocol needs no entry in `listener.security.protocol.map`. A
controller listener needs none either, as long as the map is not given and only PLAINTEXT is in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from runtime.config.errors import ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SUPPORTED_PROTOCOLS = ("PLAINTEXT",)

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_HOST_PORT = re.compile(r"\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
_VOTER = re.compile(r"([0-9]+)@(.*)")


class Listener(NamedTuple):
    """An address to listen on or to advertise. An empty host means every interface."""

    name: str
    host: str
    port: int
    protocol: str


class Voter(NamedTuple):
    """One entry of `controller.quorum.voters`."""

    node_id: int
    host: str
    port: int


class HostPort(NamedTuple):
    host: str
    port: int


def parse_protocol_map(entries: str) -> dict[str, str]:
    """Parse `NAME:PROTOCOL,...` into a map with upper-case names. Raises ConfigError."""
    key = "listener.security.protocol.map"
    result: dict[str, str] = {}
    for entry in (part.strip() for part in entries.split(",")):
        if not entry:
            continue
        name, colon, protocol = entry.rpartition(":")
        if not colon or not name:
            raise ConfigError(key, entry, "each entry must be NAME:PROTOCOL")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if protocol not in PROTOCOLS:
            raise ConfigError(key, entry, f"the protocol must be one of {', '.join(PROTOCOLS)}")
        if name in result:
            raise ConfigError(key, entry, f"listener {name} is mapped twice")
        result[name] = protocol
    return result


def parse_listeners(
    key: str, entries: Sequence[str], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Parse the listeners of `key`, each with a protocol. Raises ConfigError."""
    result = []
    for entry in entries:
        match = _ENDPOINT.fullmatch(entry)
        if match is None:
            raise ConfigError(key, entry, "must be a list of NAME://host:port")
        name, host, port = match[1].upper(), match[2], int(match[3])
        if not 0 <= port <= 65535:
            raise ConfigError(key, entry, "the port must be from 0 to 65535")
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(
                key, entry, f"listener {name} has no entry in listener.security.protocol.map"
            )
        result.append(Listener(name, host, port, protocol))
    _check_distinct(key, result)
    return tuple(result)


def _check_distinct(key: str, listeners: Sequence[Listener]) -> None:
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise ConfigError(key, ",".join(names), "each listener must have a different name")
    if key != "listeners":
        return
    seen: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port != 0:
            seen.setdefault(listener.port, []).append(listener)
    for port, same in seen.items():
        if len(same) > 1 and not _one_each_family(same):
            raise ConfigError(key, port, "each listener must have a different port")


def _one_each_family(listeners: Sequence[Listener]) -> bool:
    """Return whether the listeners are an IPv4 and an IPv6 address, which may share a port in
    Kafka.
    """
    families = sorted(":" in listener.host for listener in listeners)
    return families == [False, True] and all(
        ":" in listener.host or re.fullmatch(r"[0-9.]+", listener.host) for listener in listeners
    )


def parse_voters(entries: Sequence[str]) -> tuple[Voter, ...]:
    """Parse entries `id@host:port`. Raises ConfigError."""
    key = "controller.quorum.voters"
    result: list[Voter] = []
    for entry in entries:
        match = _VOTER.fullmatch(entry)
        address = _HOST_PORT.fullmatch(match[2]) if match else None
        if match is None or address is None or int(address[2]) > 65535:
            raise ConfigError(key, entry, "each entry must be id@host:port")
        voter = Voter(int(match[1]), address[1], int(address[2]))
        if any(voter.node_id == other.node_id for other in result):
            raise ConfigError(key, entry, f"node {voter.node_id} is listed twice")
        result.append(voter)
    return tuple(result)


def parse_host_ports(key: str, entries: Sequence[str]) -> tuple[HostPort, ...]:
    """Parse entries `host:port`. Raises ConfigError."""
    result = []
    for entry in entries:
        match = _HOST_PORT.fullmatch(entry)
        if match is None or not match[1] or int(match[2]) > 65535:
            raise ConfigError(key, entry, "each entry must be host:port")
        result.append(HostPort(match[1], int(match[2])))
    return tuple(result)


def unsupported_protocols(listeners: Sequence[Listener]) -> Iterator[ConfigError]:
    for listener in listeners:
        if listener.protocol not in SUPPORTED_PROTOCOLS:
            yield ConfigError(
                "listener.security.protocol.map",
                f"{listener.name}:{listener.protocol}",
                "only PLAINTEXT listeners are supported, not TLS and SASL",
            )
