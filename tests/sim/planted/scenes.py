"""Scenes: schedules written by hand, in which a planted bug shows. Each says who is in trouble
when, and which bugs are seen then; without a bug every promise holds.

A seed that finds a bug finds nothing any more when what is drawn from it changes. A scene draws
nothing but delays.
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
    "controller killed": Scene(
        _THREE,
        ((300, "kill", "active controller", {"for_ms": 700}),),
        1_000,
        (
            "vote before disk",
            "vote kept in memory",
            "second vote, other disk",
            "leader forgets that it led",
            "commit by the leader alone",
            "leader counts unflushed",
            "follower commits unflushed",
            "fetch before flush",
            "metadata flush lies",
            "quorum mark falls",
        ),
    ),
    "controllers far apart": Scene(
        replace(_THREE, controllers=5, link=LINKS["far"]),
        ((300, "kill", "active controller", {"for_ms": 700}),),
        1_000,
        ("second vote", "elected by itself"),
    ),
    "a start on a taken port": Scene(Focus(), TAKEN_PORT, 2_000, ("clean shutdown forgotten",)),
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
            "shows all it has",
            "acknowledged at once",
            "epoch in no file",
            "producer ids overlap",
            "commit before replication",
            "appended during a flush",
            "flush lies",
            "waiting fetch sleeps on",
        ),
    ),
    "nothing happens for long": Scene(
        Focus(idempotent=0, plain=0), (), 500, ("session forgets news",), slow=True
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
        ("cut at the leader's end", "epochs after a cut", "joins below the epoch start"),
    ),
    "both followers stand still": Scene(
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
            "answers overtake",
        ),
    ),
    "both followers stand still for long": Scene(
        Focus(idempotent=0, plain=0),
        (
            (300, "pause", "node 3", {"for_ms": 4_000}),
            (300, "pause", "node 4", {"for_ms": 4_200}),
        ),
        4_600,
        ("no answer at the deadline",),
    ),
    "both replicas go": Scene(
        Focus(),
        (
            (300, "kill", "follower of t1-0", {"for_ms": 1_300}),
            (1_500, "kill", "leader of t1-0", {"for_ms": 1_500}),
        ),
        3_200,
        (
            "unclean by default",
            "another one stays",
            "fenced broker elected",
            "nobody in the ISR",
            "high watermark unsettled",
            "elected outside the ISR",
        ),
    ),
    "no controller hears a follower": Scene(
        Focus(),
        ((300, "cut", "follower of t0-0", {"for_ms": 3_000, "from": "controllers"}),),
        3_500,
        ("fenced broker joins",),
    ),
    "a broker is back at once": Scene(
        Focus(),
        ((500, "kill", "follower of t0-0", {"for_ms": 1}),),
        800,
        (
            "stays in its ISRs",
            "waits of a gone connection",
            "sessions of earlier lives",
            "watched when over",
        ),
    ),
    "a leader is cut off": Scene(
        Focus(idempotent=2, plain=2, members=1),
        ((300, "cut", "leader of t0-0", {"for_ms": 2_500, "from": "all"}),),
        3_500,
        (
            "recovery point above the end",
            "producers after a cut",
            "cut at the high watermark",
            "never cut",
            "epochs forgotten on election",
            "cut segment stays open",
            "cut below the common end",
            "wrong leader named",
        ),
    ),
    "a leader is cut off for long": Scene(
        Focus(plain=3),
        ((300, "cut", "leader of t0-0", {"for_ms": 4_500, "from": "all"}),),
        5_500,
        ("mark above an unflushed cut", "no divergence reported"),
        seed=2,
        places={"t0": ((4, 3, 2),), "t1": ((3, 2),)},
    ),
    "power goes under a roll": Scene(
        Focus(idempotent=2, plain=2, members=1),
        ((700, "power cut", "follower of t0-0", _TORN),),
        1_200,
        ("segments behind a hole",),
        seed=3,
        places={"t0": ((3, 4, 2),), "t1": ((4, 3),)},
    ),
    "power goes under an append": Scene(
        Focus(idempotent=2, plain=2, members=1),
        ((700, "power cut", "follower of t0-0", _TORN),),
        1_200,
        ("always clean",),
        seed=2,
        places={"t0": ((4, 3, 2),), "t1": ((3, 2),)},
    ),
    "a follower far away joins again": Scene(
        Focus(sessions=1, link=LINKS["far"]),
        ((300, "pause", "node 3", {"for_ms": 2_600}),),
        3_200,
        ("waits for the committed ISR",),
        places={"t0": ((2, 3, 4),), "t1": ((3, 4),)},
    ),
    "the coordinator is killed": Scene(
        Focus(members=3, idempotent=0, plain=0),
        ((1_500, "kill", "leader of __consumer_offsets-0", {"for_ms": 1_500}),),
        3_200,
        ("loads half",),
    ),
    "members come and go": Scene(
        Focus(members=3, idempotent=0, plain=0),
        (),
        9_000,
        (
            "shares change hands",
            "heartbeats are always well",
            "nobody misses who left",
            "a stable group lets wait",
            "a rebalance waits for the dead",
        ),
    ),
    "the only member comes and goes": Scene(
        Focus(members=1, idempotent=0, plain=0), (), 6_000, ("an empty group begins anew",)
    ),
    "clients of groups are hasty": Scene(HASTY, (), 3_000, HASTY_BUGS, slow=True),
    "a topic is made again unseen": Scene(PAIR, MADE_AGAIN, 5_000, BY_NAME, slow=True),
    "offsets end": Scene(
        Focus(brief=1, idempotent=0, plain=0, settings=_BRIEF), (), 3_000, ("offsets end at once",)
    ),
    "offsets are to end": Scene(
        Focus(brief=1, idempotent=0, plain=0, settings=_BRIEF),
        (),
        500,
        ("offsets never end",),
        slow=True,
    ),
    "an hour passes for the coordinator": Scene(
        Focus(members=1, idempotent=0, plain=0, settings=_BRIEF),
        ((2_000, "coordinator's clock", _COORDINATOR, {"by_ms": 3_000_000, "for_ms": 6_000}),),
        9_000,
        ("what members read ends",),
    ),
    "a leader writes much and is cut off": Scene(
        Focus(idempotent=0, plain=5, settings={"log.flush.offset.checkpoint.interval.ms": "1000"}),
        ((300, "cut", "leader of t0-0", {"for_ms": 3_500, "from": "all"}),),
        4_300,
        ("roll after a cut",),
    ),
    "power goes three times": Scene(
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
    "answers are lost": Scene(
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
        # The follower 4 hears nothing for long. So it leads with less than 3 has, who is cut; then
        # the first leader is elected again, and 3 does not reach it.
        Focus(topics=_T0, plain=1, idempotent=0, settings=_PATIENT),
        (
            (300, "cut", "node 4", {"for_ms": 2_600, "from": "node 2"}),
            (900, "cut", "node 2", {"for_ms": 2_000, "from": "controllers"}),
            (2_980, "kill", "node 4", {"for_ms": 1_000}),
            (2_985, "cut", "node 3", {"for_ms": 800, "from": "node 2"}),
        ),
        4_200,
        ("progress survives an election",),
    ),
    "an answer comes after two elections": Scene(
        # 4 says to 3 where their logs part. When that arrives 2 has led, and 4 leads again.
        Focus(topics=(replace(TOPICS[0], partitions=2),), plain=3, idempotent=0, settings=_PATIENT),
        (
            (300, "cut", "node 4", {"for_ms": 2_500, "from": "node 2"}),
            (900, "cut", "node 2", {"for_ms": 2_000, "from": "controllers"}),
            (2_295, "stalled", "node 3", {"for_ms": 3_600, "from": "node 4", **_HELD}),
            (3_700, "preferred election", "t0-0", {"for_ms": 300, "which": 0}),
            (5_000, "kill", "node 2", {"for_ms": 1_500}),
        ),
        6_600,
        ("answer from before a cut",),
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
        ("flush across a cut",),
        seed=3,
    ),
    "a proposal comes late": Scene(
        # That 3 is to join the ISR is asked a second time and granted; 3 leaves it again, and then
        # the first request comes.
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
        # 3 has lost all, and needs long to have it again, since a fetch brings little.
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
        ("fetch of an earlier life",),
    ),
    "bits flip under a leader": Scene(
        Focus(idempotent=0, plain=2, sessions=1),
        (
            (500, "kill", "follower of t0-0", {"for_ms": 1_500}),
            (1_500, "bit flips", "leader of t0-0", {"topic": "t0", "for_ms": 1_500}),
        ),
        3_300,
        ("no checksum from the leader",),
    ),
    "a second process": Scene(
        Focus(idempotent=0),
        ((300, "second process", "node 3", {"for_ms": 700}),),
        1_100,
        ("two brokers of one id",),
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
            "unclean taken for clean",
            "ELR election marked unclean",
            "ELR election counted as unclean",
        ),
    ),
    "eligible replicas are back one by one": Scene(
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
        ("raised minimum unread",),
    ),
    "all brokers end": Scene(
        # The last leader has written nothing.
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
    "who has answered is fenced": Scene(
        # 4 has the longest log, and says so. It has gone when 2 says at last what it has.
        Focus(topics=_T0, idempotent=0, elr=True, settings={MANAGER: "true", TIMEOUT: "6000"}),
        (
            (300, "all down", "all brokers", _ONE_BY_ONE),
            (2_200, "pause", "node 2", {"for_ms": 1_000}),
            (2_600, "kill", "node 4", {"for_ms": 1_500}),
        ),
        4_200,
        ("fenced winner",),
    ),
    "who has answered is back": Scene(
        Focus(topics=_T0, idempotent=0, elr=True, settings={MANAGER: "true", TIMEOUT: "300"}),
        (
            (300, "recovery struck", "a recovery", _STRUCK),
            (500, "all down", "all brokers", _ALL_DOWN),
        ),
        6_500,
        ("answer of an older life",),
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
    "nothing is committed for long": Scene(
        replace(
            TIER, topics=(replace(KEEPS, configs={**KEEPS.configs, "min.insync.replicas": "3"}),)
        ),
        ((700, "pause", "node 4", {"for_ms": 2_000}),),
        3_000,
        ("copied before it is stable",),
    ),
    "a new leader does not hear of copies": Scene(
        # 3 leads, unheard by controllers, and goes on copying; the metadata topic is 4's, whom 2
        # does not hear when it is elected. A replica of that topic that is deaf would hold it up.
        replace(TIER, topics=(_PAIR,), settings={**SETTINGS, **_METADATA_PAIR}),
        (
            (400, "cut", "node 3", {"for_ms": 2_200, "from": "controllers"}),
            (1_600, "stalled", "node 2", {"for_ms": 900, "from": "node 4", **_HELD}),
        ),
        2_600,
        ("led before all is known",),
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
    "all is as it is to be in the tier": Scene(
        TIER,
        (),
        2_000,
        (
            "local start is the log start",
            "pending from the local start",
            "times on the disk alone",
        ),
        places={"t0": ((2, 4, 3),), "t1": ((4, 3),)},
    ),
    "the tier is of a log that lost": Scene(
        replace(TIER, topics=(_UNCLEAN,), plain=3),
        (
            (500, "cut", "follower of t0-0", {"for_ms": 2_000, "from": "all"}),
            (2_300, "kill", "leader of t0-0", {"for_ms": 1_500}),
        ),
        4_000,
        ("highest offset for the remote end",),
    ),
    "a replica has nothing yet": Scene(
        # The order is 2, 4, 3. 4 does not hear of the first record, and stays in the ISR.
        SELDOM,
        (
            (100, "cut", "node 4", {"for_ms": 3_500, "from": "node 2"}),
            (2_700, "kill", "leader of t0-0", {"for_ms": 1_000}),
        ),
        4_200,
        ("sorted in place",),
    ),
    "a replica has nothing again": Scene(
        # As there, and all goes after each record: so it is to be found at any time.
        ALL_GOES_SLOWLY,
        (
            (100, "cut", "node 4", {"for_ms": 3_500, "from": "node 2"}),
            (2_700, "kill", "leader of t0-0", {"for_ms": 1_000}),
        ),
        4_200,
        ("nothing is enough",),
        drawn=ALL_OF_SIX_GOES,
    ),
    "a report takes long": Scene(
        LOCAL_LOGS,
        (
            (250, "late", "node 1", {"for_ms": 4_500, "from": "brokers", "late_ms": 400.0}),
            (300, "pause", "follower of t0-0", {"for_ms": 2_600}),
        ),
        5_000,
        ("a report's answer is the ISR",),
    ),
    "all goes, and a disk is wiped": Scene(
        # 3 is back in the ISR when nothing is left to be copied.
        ALL_GOES,
        ((2_000, "wiped disk", "node 3", {"for_ms": 300}),),
        3_000,
        ("local logs of an earlier life",),
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
    "the tier has what was lost": Scene(
        # The follower leads, with less than the tier has; who led comes back with nothing.
        UNCLEAN_PAIR,
        (
            (500, "cut", "follower of t0-0", {"for_ms": 3_000, "from": "all"}),
            (3_300, "wiped disk", "leader of t0-0", {"for_ms": 400}),
        ),
        5_000,
        ("highest offset for the part before",),
    ),
    "a log ends while it begins": Scene(
        NEW_REPLICAS,
        (
            (2_900, "beginning struck", "a log that begins", _AT_EPOCHS),
            (3_000, "wiped disk", "follower of t0-0", {"for_ms": 300}),
        ),
        6_000,
        ("marker away early",),
    ),
    **{name: Scene(**fields) for name, fields in {**REGISTRATIONS, **DISK_SCENES}.items()},
}
"""By name."""
SCENE_OF = {bug: scene for scene in SCENES.values() for bug in scene.bugs}
