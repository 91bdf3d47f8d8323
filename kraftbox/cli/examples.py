"""Examples in the help text of each command; a test parses all of them."""

from __future__ import annotations

from typing import Any

EXAMPLES: dict[str, tuple[str, ...]] = {
    "up": (
        "kraftbox up --dir data --set num.partitions=3",
        "kraftbox up --controllers 3 --brokers 3 --racks a,b,c --detach",
        "kraftbox up --file testbed.yaml --dir testbed",
    ),
    "server": ("kraftbox server server.properties --override log.retention.hours=1",),
    "ls": ("kraftbox ls", "kraftbox ls --json"),
    "status": ("kraftbox status --watch", "kraftbox status --topics --dir data"),
    "top": ("kraftbox top --dir data",),
    "node kill": ("kraftbox node kill 101",),
    "node stop": ("kraftbox node stop 2 3 --timeout 60",),
    "node pause": ("kraftbox node pause 101 102",),
    "node resume": ("kraftbox node resume 101 102",),
    "node cut-off": ("kraftbox node cut-off 2",),
    "node reconnect": ("kraftbox node reconnect 2",),
    "node start": ("kraftbox node start 101 --dir data", "kraftbox node start --all"),
    "link slow": ("kraftbox link slow 1 2 --delay 200", "kraftbox link slow clients 3"),
    "link lossy": ("kraftbox link lossy 1 101 --loss 30",),
    "link cut": ("kraftbox link cut 1 2", "kraftbox link cut 3 101 --one-way"),
    "link heal": ("kraftbox link heal 1 2", "kraftbox link heal"),
    "link list": ("kraftbox link list --json",),
    "events": (
        "kraftbox events --since 12:03 --partition orders-0",
        "kraftbox events --follow --json",
    ),
    "logs": ("kraftbox logs --since 10m", "kraftbox logs 101 --follow"),
    "down": ("kraftbox down --dir data",),
    "storage random-uuid": ("kraftbox storage random-uuid",),
    "storage version-mapping": ("kraftbox storage version-mapping --release-version 4.2",),
    "storage feature-dependencies": (
        "kraftbox storage feature-dependencies --feature transaction.version=2",
    ),
    "storage info": ("kraftbox storage info --config server.properties",),
    "storage format": (
        "kraftbox storage format --config server.properties --cluster-id"
        " $(kraftbox storage random-uuid)",
    ),
    "topics list": ("kraftbox topics list --internal", "kraftbox topics list --dir data"),
    "topics create": (
        "kraftbox topics create orders --partitions 3 --replication-factor 3",
        "kraftbox topics create short --config retention.ms=60000 --if-not-exists",
    ),
    "topics describe": ("kraftbox topics describe orders --json",),
    "topics alter": ("kraftbox topics alter orders --partitions 6",),
    "topics delete": ("kraftbox topics delete orders --if-exists",),
    "configs describe": ("kraftbox configs describe --topic orders",),
    "configs alter": ("kraftbox configs alter --topic orders --set retention.ms=60000",),
    "groups list": ("kraftbox groups list",),
    "groups describe": ("kraftbox groups describe readers",),
    "groups delete": ("kraftbox groups delete readers",),
    "groups reset-offsets": (
        "kraftbox groups reset-offsets readers --topic orders --to-earliest --dry-run",
        "kraftbox groups reset-offsets readers --topic orders --to-time 2026-05-01T12:00:00",
        "kraftbox groups reset-offsets readers --topic orders --shift-by -100",
    ),
    "tier list": ("kraftbox tier list --dir data",),
    "tier verify": ("kraftbox tier verify --dir data",),
    "tier rebuild": ("kraftbox tier rebuild --properties server.properties",),
    "elect": (
        "kraftbox elect --all",
        "kraftbox elect --explain orders-0",
        "kraftbox elect orders-0 --type designation --leader 2",
    ),
    "reassign": (
        "kraftbox reassign",
        "kraftbox reassign orders-0 orders-1 --to 2,3,1 --wait 60",
        "kraftbox reassign orders-0 --cancel",
    ),
    "produce": (
        "kraftbox produce orders < lines.txt",
        "kraftbox produce orders --file lines.txt --key-separator : --tombstones",
        "kraftbox produce copy --format json --rate 1000 < orders.json",
    ),
    "consume": (
        "kraftbox consume orders --from-beginning --group readers",
        "kraftbox consume orders --partition 0 --offset 100 --max-messages 1 --json",
        "kraftbox consume orders --offset -5 --exit --format '%p %o %k %s\\n'",
        "kraftbox consume orders --offset @2026-05-01T12:00:00",
    ),
    "chaos": (
        "kraftbox chaos --minutes 1 --faults kill-leader,pause",
        "kraftbox chaos --dir data --seed 7 --audit report",
        "kraftbox chaos --until-broken --junit chaos.xml",
        "kraftbox chaos --replay chaos-7.kbxh --client librdkafka --edn chaos.edn",
    ),
    "dump-log": ("kraftbox dump-log data/orders-0/00000000000000000000.log",),
    "audit": (
        "kraftbox audit /copies/of/controllers",
        "kraftbox audit data --at 2026-05-01T12:00:00",
        "kraftbox audit data --out report --no-tables",
    ),
    "grafana": ("kraftbox grafana", "kraftbox grafana --out dashboards"),
    "prometheus": (
        "kraftbox prometheus --dir data",
        "kraftbox prometheus --serve 9405 --name orders",
    ),
    "schema": ("kraftbox schema testbed",),
    "man": ("kraftbox man topics create", "kraftbox man --out /usr/local/share/man"),
    "doctor": ("kraftbox doctor --dir data --port 9092",),
    "sim": ("kraftbox sim --seed 42 --show", "kraftbox sim --runs 20 --jobs 2"),
}


def add_examples(command: Any, path: str) -> None:
    """Append the examples to the help of a command, or of each command in a group."""
    for name, each in getattr(command, "commands", {}).items():
        add_examples(each, f"{path} {name}")
    if path in EXAMPLES:
        lines = "\n".join(f"  {line}" for line in EXAMPLES[path])
        command.epilog = f"\b\nExamples:\n{lines}"
