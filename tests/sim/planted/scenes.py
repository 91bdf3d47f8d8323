"""Scenes: schedules written by hand that show planted bugs. Without a bug every promise holds.

A seed stops finding a bug when the drawing of schedules changes. A scene draws only delays.
"""

from __future__ import annotations

from dataclasses import replace

from simulation.shapes.drawing import LINKS
from simulation.shapes.shape import MANAGER, TIMEOUT, DiskShape
from simulation.shapes.tier import METADATA
from tests.sim.planted.disk_scenes import DISK_SCENES
from tests.sim.planted.focus import FIVE_VOTERS, TAKEN_PORT, TOPICS, WIPED_VOTERS, Focus
from tests.sim.planted.group_focus import BY_NAME, HASTY, HASTY_BUGS, MADE_AGAIN, PAIR
from tests.sim.planted.registration_scenes import REGISTRATIONS
from tests.sim.planted.replica_focus import (
    ALL_GOES,
    ALL_GOES_SLOWLY,
    ALL_OF_SIX_GOES,
    LOCAL_LOGS,
    NEW_REPLICAS,
    SELDOM,
    SHORT_SEGMENTS,
    UNCLEAN_PAIR,
)
from tests.sim.planted.scene import Scene
from tests.sim.planted.tier_focus import (
    KEEPS,
    LAGGING,
    LOST_END,
    METADATA_ALONE,
    SETTINGS,
    SHRINKS,
    TIER,
    TIERED,
)

_ALONE = (replace(TOPICS[0], replication_factor=1, configs={}),)
_THREE = Focus(controllers=3, brokers=1, topics=_ALONE, plain=0, idempotent=0)
_NEW = {"partitions": 1, "factor": 1, "configs": {}, "for_ms": 1}
_TORN = {"for_ms": 1, "torn": True, "dark": False}
_T0 = TOPICS[:1]
_PATIENT = {"replica.lag.time.max.ms": "6000"}
_LONG_SESSIONS = {"broker.session.timeout.ms": "9000"}
_HELD = {"here": False, "gives_up_ms": None}
_ALL_DOWN = {"down": [2, 3, 4], "up": [2, 3, 4], "spared": [], "kept": [2, 3, 4], "torn": True}
_ALL_DOWN |= {"down_ms": 1, "off_ms": 500, "up_ms": [500, 500, 500], "for_ms": 4_000}
_ONE_BY_ONE = {**_ALL_DOWN, "up": [2, 4, 3], "down_ms": 300, "up_ms": [0, 800, 0], "for_ms": 2_500}
_STRUCK = {"blow": "restart other", "other": True, "which": 0, "late_ms": 30.0, "back_ms": 1}
_STRUCK |= {"for_ms": 6_000}
_AT_EPOCHS = {"step": "epochs", "blow": "kill", "after": 0, "back_ms": 300, "for_ms": 3_000}
_SLOW = {"latency_ms": [500.0, 900.0]}
_METADATA_PAIR = {f"{METADATA}topic.replication.factor": "2", f"{METADATA}topic.min.isr": "1"}
_PAIR = replace(SHRINKS, name="t0", configs=TIERED)
_UNCLEAN = replace(_PAIR, configs={**TIERED, "unclean.leader.election.enable": "true"})
_COORDINATOR = "leader of __consumer_offsets-0"
_BRIEF = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "20"}

SCENES: dict[str, Scene] = {
    "the active controller is killed": Scene(
        _THREE,
        ((300, "kill", "active controller", {"for_ms": 700}),),
        1_000,
        (
            "first records appended twice",
            "bootstrap.checkpoint preferred to the snapshot",
            "vote before disk",
            "quorum-state not written",
            "second vote, other disk",
            "leader forgets its own epoch",
            "commit by the leader alone",
            "leader counts unflushed",
            "follower commits unflushed",
            "fetch before flush",
            "metadata not flushed",
            "quorum high watermark decreases",
        ),
    ),
    "controllers far apart": Scene(
        replace(_THREE, controllers=5, link=LINKS["far"]),
        ((300, "kill", "active controller", {"for_ms": 700}),),
        1_000,
        ("second vote", "elected by its own vote"),
    ),
    "a broker starts on a taken port": Scene(
        Focus(), TAKEN_PORT, 2_000, ("clean shutdown forgotten",)
    ),
    "a voter loses its disk": Scene(FIVE_VOTERS, WIPED_VOTERS, 6_500, ("wiped disk counted",)),
    "a controller missed records": Scene(
        _THREE,
        (
            (300, "cut", "controller 3", {"for_ms": 1_500, "from": "controllers"}),
            (500, "create topic", "new-1", _NEW),
            (700, "create topic", "new-2", _NEW),
            (1_500, "kill", "active controller", {"for_ms": 2_500}),
        ),
        4_500,
        ("vote for a shorter log",),
    ),
    "the active controller is cut off": Scene(
        _THREE,
        ((300, "cut", "active controller", {"for_ms": 8_000, "from": "controllers"}),),
        8_400,
        ("leader without majority",),
    ),
    "nothing happens": Scene(
        Focus(members=1),
        (),
        500,
        (
            "high watermark at the log end",
            "acknowledged before replication",
            "epoch not in the file",
            "producer ids overlap",
            "commit before replication",
            "appended during a flush",
            "flush does nothing",
            "waiting fetch not woken",
        ),
    ),
    "nothing happens for long": Scene(
        Focus(idempotent=0, plain=0), (), 500, ("fetch session misses changes",), slow=True
    ),
    "the second leader has less than the third": Scene(
        Focus(idempotent=0, plain=4),
        (
            (300, "cut", "node 4", {"for_ms": 440, "from": "node 2"}),
            (650, "cut", "node 3", {"for_ms": 1_500, "from": "node 4"}),
            (720, "kill", "node 2", {"for_ms": 2_500}),
            (1_300, "kill", "node 4", {"for_ms": 1_500}),
        ),
        3_300,
        (
            "truncated to the leader's end",
            "epochs after a truncation",
            "joins below the epoch start",
        ),
    ),
    "both followers pause": Scene(
        Focus(sessions=1),
        (
            (300, "pause", "node 3", {"for_ms": 2_000}),
            (300, "pause", "node 4", {"for_ms": 2_200}),
        ),
        2_600,
        (
            "below min ISR",
            "joins early",
            "uncommitted shown",
            "responses overtake",
        ),
    ),
    "both followers pause for long": Scene(
        Focus(idempotent=0, plain=0),
        (
            (300, "pause", "node 3", {"for_ms": 4_000}),
            (300, "pause", "node 4", {"for_ms": 4_200}),
        ),
        4_600,
        ("no response at the timeout",),
    ),
    "both replicas are killed": Scene(
        Focus(),
        (
            (300, "kill", "follower of t1-0", {"for_ms": 1_300}),
            (1_500, "kill", "leader of t1-0", {"for_ms": 1_500}),
        ),
        3_200,
        (
            "unclean by default",
            "wrong member stays",
            "fenced broker elected",
            "empty ISR",
            "high watermark unsettled",
            "elected outside the ISR",
        ),
    ),
    "a follower cannot reach the controllers": Scene(
        Focus(),
        ((300, "cut", "follower of t0-0", {"for_ms": 3_000, "from": "controllers"}),),
        3_500,
        ("fenced broker joins",),
    ),
    "a broker restarts at once": Scene(
        Focus(),
        ((500, "kill", "follower of t0-0", {"for_ms": 1}),),
        800,
        (
            "stays in its ISRs",
            "waits of a closed connection",
            "fetch sessions of earlier incarnations",
            "closed sessions notified",
        ),
    ),
    "a leader is cut off": Scene(
        Focus(idempotent=2, plain=2, members=1),
        ((300, "cut", "leader of t0-0", {"for_ms": 2_500, "from": "all"}),),
        3_500,
        (
            "recovery point above the end",
            "producers after a truncation",
            "truncated to the high watermark",
            "never truncated",
            "epoch start not recorded",
            "truncated segment stays open",
            "truncated below the common end",
            "wrong leader named",
        ),
    ),
    "a leader is cut off for long": Scene(
        Focus(plain=3),
        ((300, "cut", "leader of t0-0", {"for_ms": 4_500, "from": "all"}),),
        5_500,
        ("checkpoint above an unflushed truncation", "no divergence reported"),
        seed=2,
        places={"t0": ((4, 3, 2),), "t1": ((3, 2),)},
    ),
    "a power cut during a roll": Scene(
        Focus(idempotent=2, plain=2, members=1),
        ((700, "power cut", "follower of t0-0", _TORN),),
        1_200,
        ("segments behind a hole",),
        seed=3,
        places={"t0": ((3, 4, 2),), "t1": ((4, 3),)},
    ),
    "a power cut during an append": Scene(
        Focus(idempotent=2, plain=2, members=1),
        ((700, "power cut", "follower of t0-0", _TORN),),
        1_200,
        ("recovery always skipped",),
        seed=2,
        places={"t0": ((4, 3, 2),), "t1": ((3, 2),)},
    ),
    "a follower far away joins again": Scene(
        Focus(sessions=1, link=LINKS["far"]),
        ((300, "pause", "node 3", {"for_ms": 2_600}),),
        3_200,
        ("proposed members ignored",),
        places={"t0": ((2, 3, 4),), "t1": ((3, 4),)},
    ),
    "the coordinator is killed": Scene(
        Focus(members=3, idempotent=0, plain=0),
        ((1_500, "kill", "leader of __consumer_offsets-0", {"for_ms": 1_500}),),
        3_200,
        ("half of the log loaded",),
    ),
    "members come and go": Scene(
        Focus(members=3, idempotent=0, plain=0),
        (),
        9_000,
        (
            "assignments exchanged",
            "heartbeats always succeed",
            "leaving starts no rebalance",
            "joining starts no rebalance",
            "rebalance waits for dead members",
        ),
    ),
    "the only member comes and goes": Scene(
        Focus(members=1, idempotent=0, plain=0), (), 6_000, ("empty group forgets its generation",)
    ),
    "clients of groups are hasty": Scene(HASTY, (), 3_000, HASTY_BUGS, slow=True),
    "a topic is recreated unseen": Scene(PAIR, MADE_AGAIN, 5_000, BY_NAME, slow=True),
    "offsets expire": Scene(
        Focus(brief=1, idempotent=0, plain=0, settings=_BRIEF),
        (),
        3_000,
        ("offsets expire at once",),
    ),
    "offsets should expire": Scene(
        Focus(brief=1, idempotent=0, plain=0, settings=_BRIEF),
        (),
        500,
        ("offsets never expire",),
        slow=True,
    ),
    "an hour passes for the coordinator": Scene(
        Focus(members=1, idempotent=0, plain=0, settings=_BRIEF),
        ((2_000, "coordinator's clock", _COORDINATOR, {"by_ms": 3_000_000, "for_ms": 6_000}),),
        9_000,
        ("offsets of subscribed topics expire",),
    ),
    "a leader writes much and is cut off": Scene(
        Focus(idempotent=0, plain=5, settings={"log.flush.offset.checkpoint.interval.ms": "1000"}),
        ((300, "cut", "leader of t0-0", {"for_ms": 3_500, "from": "all"}),),
        4_300,
        ("roll after a truncation",),
    ),
    "three power cuts": Scene(
        Focus(
            idempotent=0,
            plain=6,
            topics=tuple(replace(one, partitions=2, configs={}) for one in TOPICS),
        ),
        (
            (700, "power cut", "node 3", _TORN),
            (1_700, "power cut", "node 4", _TORN),
            (2_700, "power cut", "node 3", _TORN),
        ),
        2_750,
        ("no checksum on recovery",),
        seed=2,
    ),
    "responses are lost": Scene(
        Focus(idempotent=2, plain=0),
        (
            (
                300,
                "reset",
                "leader of t0-0",
                {"for_ms": 1_500, "from": "clients", "reset_chance": 0.5},
            ),
        ),
        2_000,
        ("duplicates written",),
        seed=3,
        places={"t0": ((3, 4, 2),), "t1": ((4, 3),)},
    ),
    "a leader leads again": Scene(
        # Follower 4 gets no records for long. It leads with fewer records than 3, which truncates.
        # Then the first leader is elected again, and 3 does not reach it.
        Focus(topics=_T0, plain=1, idempotent=0, settings=_PATIENT),
        (
            (300, "cut", "node 4", {"for_ms": 2_600, "from": "node 2"}),
            (900, "cut", "node 2", {"for_ms": 2_000, "from": "controllers"}),
            (2_980, "kill", "node 4", {"for_ms": 1_000}),
            (2_985, "cut", "node 3", {"for_ms": 800, "from": "node 2"}),
        ),
        4_200,
        ("progress kept across elections",),
    ),
    "a response comes after two elections": Scene(
        # 4 tells 3 where their logs diverge. When the response arrives, 2 has led, and 4 leads
        # again.
        Focus(topics=(replace(TOPICS[0], partitions=2),), plain=3, idempotent=0, settings=_PATIENT),
        (
            (300, "cut", "node 4", {"for_ms": 2_500, "from": "node 2"}),
            (900, "cut", "node 2", {"for_ms": 2_000, "from": "controllers"}),
            (2_295, "stalled", "node 3", {"for_ms": 3_600, "from": "node 4", **_HELD}),
            (3_700, "preferred election", "t0-0", {"for_ms": 300, "which": 0}),
            (5_000, "kill", "node 2", {"for_ms": 1_500}),
        ),
        6_600,
        ("stale fetch response applied",),
        seed=2,
    ),
    "leadership goes back, on a slow disk": Scene(
        Focus(
            topics=(replace(TOPICS[0], configs={**TOPICS[0].configs, "flush.messages": "1"}),),
            plain=5,
            idempotent=0,
            disk=DiskShape(50.0, 120.0, 1.0),
        ),
        (
            (300, "kill", "leader of t0-0", {"for_ms": 500}),
            (2_500, "preferred election", "t0-0", {"for_ms": 500, "which": 0}),
        ),
        3_300,
        ("flush across a truncation",),
        seed=3,
    ),
    "a proposal comes late": Scene(
        # The second proposal that 3 joins the ISR is accepted, 3 leaves the ISR again, and then the
        # first proposal arrives.
        Focus(topics=_T0, plain=1, idempotent=0, settings=_LONG_SESSIONS),
        (
            (300, "pause", "node 3", {"for_ms": 2_400}),
            (
                2_690,
                "stalled",
                "node 1",
                {"for_ms": 3_300, "from": "node 2", "here": False, "gives_up_ms": 300},
            ),
            (3_300, "pause", "node 3", {"for_ms": 3_300}),
        ),
        7_000,
        ("old partition epoch",),
    ),
    "a fetch comes after a restart": Scene(
        # 3 has lost every record, and small fetches restore them slowly.
        Focus(
            topics=(replace(TOPICS[0], configs={"min.insync.replicas": "2"}),),
            plain=4,
            idempotent=0,
            elr=True,
            settings={
                **_LONG_SESSIONS,
                "replica.lag.time.max.ms": "9000",
                "replica.fetch.max.bytes": "400",
                "replica.fetch.response.max.bytes": "400",
            },
        ),
        (
            (1_500, "pause", "node 4", {"for_ms": 3_000}),
            (1_520, "stalled", "node 2", {"for_ms": 550, "from": "node 3", **_HELD}),
            (1_600, "power cut", "node 3", {"for_ms": 300, "torn": False, "dark": False}),
        ),
        4_600,
        ("fetch of an earlier incarnation",),
    ),
    "bits flip on a leader's disk": Scene(
        Focus(idempotent=0, plain=2, sessions=1),
        (
            (500, "kill", "follower of t0-0", {"for_ms": 1_500}),
            (1_500, "bit flips", "leader of t0-0", {"topic": "t0", "for_ms": 1_500}),
        ),
        3_300,
        ("fetched checksum unchecked",),
    ),
    "a second process": Scene(
        Focus(idempotent=0),
        ((300, "second process", "node 3", {"for_ms": 700}),),
        1_100,
        ("two brokers with one id",),
    ),
    "an eligible replica leads": Scene(
        Focus(topics=_T0, idempotent=0, elr=True),
        (
            (100, "cut", "node 3", {"for_ms": 4_000, "from": "brokers"}),
            (100, "cut", "node 4", {"for_ms": 4_000, "from": "brokers"}),
            (3_000, "power cut", "node 2", {**_TORN, "for_ms": 500}),
        ),
        4_600,
        (
            "unclean shutdown counted as clean",
            "ELR election marked unclean",
            "ELR election counted as unclean",
        ),
    ),
    "eligible replicas return one by one": Scene(
        Focus(topics=_T0, idempotent=0, elr=True),
        (
            (100, "cut", "node 3", {"for_ms": 3_000, "from": "brokers"}),
            (100, "cut", "node 4", {"for_ms": 4_500, "from": "brokers"}),
        ),
        5_000,
        ("ELR kept at min ISR",),
    ),
    "the minimum rises unread": Scene(
        Focus(topics=_T0, idempotent=0, elr=True),
        ((300, "raised minimum", "partition 0", {"which": 0, "late_ms": 200.0, "for_ms": 4_000}),),
        4_500,
        ("raised min ISR unread",),
    ),
    "all brokers crash": Scene(
        # The last leader has appended nothing.
        Focus(
            topics=_T0,
            idempotent=0,
            plain=0,
            elr=True,
            settings={MANAGER: "true", TIMEOUT: "300"},
        ),
        (
            (100, "cut", "node 4", {"for_ms": 1_400, "from": "clients"}),
            (300, "kill", "node 2", {"for_ms": 600}),
            (1_503, "all down", "all brokers", _ALL_DOWN),
        ),
        5_600,
        (
            "epoch cache for the last batch",
            "Balanced without one member",
            "one last known with the manager",
        ),
        seed=3,
    ),
    "a broker that has responded is fenced": Scene(
        # 4 responds first, with the longest log. It has gone when the response of 2 arrives.
        Focus(topics=_T0, idempotent=0, elr=True, settings={MANAGER: "true", TIMEOUT: "6000"}),
        (
            (300, "all down", "all brokers", _ONE_BY_ONE),
            (2_200, "pause", "node 2", {"for_ms": 1_000}),
            (2_600, "kill", "node 4", {"for_ms": 1_500}),
        ),
        4_200,
        ("fenced replica wins a recovery",),
    ),
    "a broker that has responded restarts": Scene(
        Focus(topics=_T0, idempotent=0, elr=True, settings={MANAGER: "true", TIMEOUT: "300"}),
        (
            (300, "recovery struck", "a recovery", _STRUCK),
            (500, "all down", "all brokers", _ALL_DOWN),
        ),
        6_500,
        ("response of an earlier incarnation",),
    ),
    "the store is slow": Scene(
        TIER,
        ((700, "store slow", "all nodes", {"weather": _SLOW, "for_ms": 1_000}),),
        2_000,
        ("local delete before FINISHED",),
        places={"t0": ((2, 4, 3),), "t1": ((4, 3),)},
    ),
    "the tier is full": Scene(
        TIER,
        ((1_000, "store errors", "all nodes", {"weather": {"error": 0.3}, "for_ms": 1_000}),),
        2_500,
        ("deleted before the log start is safe", "dangling copies counted"),
        places={"t0": ((2, 4, 3),), "t1": ((4, 3),)},
    ),
    "copies wait for the copy lag": Scene(
        replace(TIER, topics=LAGGING),
        (),
        2_500,
        (
            "segment skipped",
            "copied before the copy lag",
            "local retention ignores the copy lag",
        ),
        places={"t0": ((2, 4, 3),), "t1": ((4, 3),)},
    ),
    "the leader's clock goes back": Scene(
        # Segments that are ahead of the clock count as old, those before them are too young.
        replace(TIER, topics=LAGGING),
        tuple(
            (at_ms, "clock jump", "leader of t1-0", {"by_ms": -300, "for_ms": 900})
            for at_ms in (700, 2_000)
        ),
        3_500,
        ("copied behind one that is not eligible",),
        places={"t0": ((2, 4, 3),), "t1": ((4, 3),)},
    ),
    "nothing is committed for long": Scene(
        replace(
            TIER, topics=(replace(KEEPS, configs={**KEEPS.configs, "min.insync.replicas": "3"}),)
        ),
        ((700, "pause", "node 4", {"for_ms": 2_000}),),
        3_000,
        ("copied before it is stable",),
    ),
    "a new leader does not learn of copies": Scene(
        # 3 leads, cut off from the controllers, and continues to copy. 4 leads the metadata topic,
        # and 2 receives nothing from it when it is elected. A deaf replica would delay that topic.
        replace(TIER, topics=(_PAIR,), settings={**SETTINGS, **_METADATA_PAIR}),
        (
            (400, "cut", "node 3", {"for_ms": 2_200, "from": "controllers"}),
            (1_600, "stalled", "node 2", {"for_ms": 900, "from": "node 4", **_HELD}),
        ),
        2_600,
        ("led before the metadata topic is read",),
        places={"t0": ((3, 2),)},
    ),
    "the tier's metadata topic loses its end": Scene(
        METADATA_ALONE,
        (LOST_END,),
        3_000,
        ("position beyond a lost end",),
        slow=True,
        places={"t0": ((2, 4, 3),), "t1": ((4, 3),)},
    ),
    "nothing happens in the tier": Scene(
        TIER,
        (),
        2_000,
        (
            "local start is the log start",
            "pending from the local start",
            "timestamps found on local disk alone",
        ),
        places={"t0": ((2, 4, 3),), "t1": ((4, 3),)},
    ),
    "the tier has a log that lost an election": Scene(
        replace(TIER, topics=(_UNCLEAN,), plain=3),
        (
            (500, "cut", "follower of t0-0", {"for_ms": 2_000, "from": "all"}),
            (2_300, "kill", "leader of t0-0", {"for_ms": 1_500}),
        ),
        4_000,
        ("highest offset for the remote end",),
    ),
    "a replica is empty": Scene(
        # The replicas are 2, 4, 3. 4 does not fetch the first record, and stays in the ISR.
        SELDOM,
        (
            (100, "cut", "node 4", {"for_ms": 3_500, "from": "node 2"}),
            (2_700, "kill", "leader of t0-0", {"for_ms": 1_000}),
        ),
        4_200,
        ("sorted in place",),
    ),
    "a replica is empty again": Scene(
        # As in the scene before, but retention empties the log after each record.
        ALL_GOES_SLOWLY,
        (
            (100, "cut", "node 4", {"for_ms": 3_500, "from": "node 2"}),
            (2_700, "kill", "leader of t0-0", {"for_ms": 1_000}),
        ),
        4_200,
        ("empty local log is enough",),
        drawn=ALL_OF_SIX_GOES,
    ),
    "a report is slow": Scene(
        LOCAL_LOGS,
        (
            (250, "late", "node 1", {"for_ms": 4_500, "from": "brokers", "late_ms": 400.0}),
            (300, "pause", "follower of t0-0", {"for_ms": 2_600}),
        ),
        5_000,
        ("report response overwrites the ISR",),
    ),
    "retention empties the log, and a disk is wiped": Scene(
        # 3 returns to the ISR when every record has been copied.
        ALL_GOES,
        ((2_000, "wiped disk", "node 3", {"for_ms": 300}),),
        3_000,
        ("local-log stats of an earlier incarnation",),
    ),
    "an epoch begins a segment": Scene(
        SHORT_SEGMENTS,
        (
            (1_500, "kill", "leader of t0-0", {"for_ms": 600}),
            (2_200, "wiped disk", "node 3", {"for_ms": 300}),
        ),
        3_500,
        ("epoch of the first offset",),
        seed=2,
        places={"t0": ((4, 3, 2),)},
    ),
    "the tier has lost records": Scene(
        # The follower leads with fewer records than the tier; the former leader returns empty.
        UNCLEAN_PAIR,
        (
            (500, "cut", "follower of t0-0", {"for_ms": 3_000, "from": "all"}),
            (3_300, "wiped disk", "leader of t0-0", {"for_ms": 400}),
        ),
        5_000,
        ("highest offset for the part before",),
    ),
    "a crash while a log begins": Scene(
        NEW_REPLICAS,
        (
            (2_900, "beginning struck", "a log that begins", _AT_EPOCHS),
            (3_000, "wiped disk", "follower of t0-0", {"for_ms": 300}),
        ),
        6_000,
        ("marker removed early",),
    ),
    **{name: Scene(**fields) for name, fields in {**REGISTRATIONS, **DISK_SCENES}.items()},
}
"""By name."""
SCENE_OF = {bug: scene for scene in SCENES.values() for bug in scene.bugs}
