"""The states of nodes under a supervisor, driven by requests and events."""

import itertools
import signal
from typing import NamedTuple

import pytest

from kraftbox.launcher.states import (
    AllEnded,
    AllReady,
    Answer,
    Launch,
    NodeProcess,
    NodeProcesses,
    Refused,
    Say,
    Send,
    State,
    Tell,
)

KILL, TERM, STOP, CONT = signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGCONT


@pytest.fixture
def cluster():
    """Return a cluster with brokers 1 and 2 and controller 101, all running."""
    made = NodeProcesses(
        [
            NodeProcess(1, is_broker=True, is_controller=False),
            NodeProcess(2, is_broker=True, is_controller=False),
            NodeProcess(101, is_broker=False, is_controller=True),
        ]
    )
    assert made.start_all() == [Launch(101), Launch(1), Launch(2)]
    for node_id in made.nodes:
        made.started(node_id, 1000 + node_id)
    assert made.ready(1, {}) == made.ready(2, {}) == []
    assert made.ready(101, {}) == [AllReady()]
    return made


def state(cluster, node_id):
    return cluster.nodes[node_id].state


def test_kill_and_start(cluster):
    assert cluster.request("kill", 1, 7) == [Send(1, KILL)]
    assert state(cluster, 1) is State.STOPPING
    assert cluster.exited(1, -9) == [Answer(7)]
    assert (state(cluster, 1), cluster.nodes[1].exit_code) == (State.KILLED, -9)
    assert cluster.request("start", 1, 8) == [Launch(1)]
    cluster.started(1, 5000)
    # Ready again; the readiness of the whole cluster was reported before.
    assert cluster.ready(1, {"http": "x"}) == [Answer(8)]
    assert (state(cluster, 1), cluster.nodes[1].pid) == (State.RUNNING, 5000)


def test_stop_wakes_a_paused_node(cluster):
    assert cluster.request("pause", 1, 1) == [Send(1, STOP), Answer(1)]
    assert cluster.request("stop", 1, 2) == [Send(1, TERM), Send(1, CONT)]
    assert cluster.exited(1, 0) == [Answer(2)]
    assert state(cluster, 1) is State.STOPPED


def test_pause_and_resume(cluster):
    cluster.request("pause", 1, 1)
    assert state(cluster, 1) is State.PAUSED
    assert cluster.request("resume", 1, 2) == [Send(1, CONT), Answer(2)]
    assert state(cluster, 1) is State.RUNNING


def test_a_node_paused_while_starting_goes_on_starting(cluster):
    cluster.request("kill", 1, 1)
    cluster.exited(1, -9)
    cluster.request("start", 1, 2)
    cluster.request("pause", 1, 3)
    cluster.request("resume", 1, 4)
    assert state(cluster, 1) is State.STARTING
    cluster.request("pause", 1, 5)
    # Its report may have been under way.
    assert cluster.ready(1, {}) == [Answer(2)]
    assert state(cluster, 1) is State.PAUSED


def test_a_stop_that_takes_long_can_become_a_kill(cluster):
    cluster.request("stop", 1, 1)
    assert cluster.request("kill", 1, 2) == [Send(1, KILL)]
    assert cluster.exited(1, -9) == [Answer(1), Answer(2)]
    assert state(cluster, 1) is State.KILLED


@pytest.mark.parametrize(
    ("action", "node_id", "why"),
    [
        ("kill", 3, "unknown node 3; known: 1, 2, 101"),
        ("start", 1, "already running"),
        ("resume", 1, "not paused"),
        ("dance", 1, "invalid action 'dance'; allowed: kill, stop"),
        ("kill", "1", "unknown node '1'"),
        ("kill", "x", "unknown node 'x'"),
        ("kill", None, "unknown node None"),
        ("kill", True, "unknown node True"),
        ("kill", 1.0, "unknown node 1.0"),
        ("kill", [1], "unknown node .1."),
        ("kill", 10**30, "unknown node 1000"),
        (None, 1, "invalid action None"),
        ({"a": 1}, 1, "invalid action {'a': 1}"),
        ("x" * 1_000_000, 1, "invalid action 'x{79}; allowed"),
    ],
)
def test_impossible_action_is_refused_with_reason(cluster, action, node_id, why):
    with pytest.raises(Refused, match=why):
        cluster.request(action, node_id, 1)


def test_nothing_is_done_to_a_node_that_is_down(cluster):
    cluster.request("kill", 1, 1)
    cluster.exited(1, -9)
    for action in ("kill", "stop", "pause", "resume"):
        with pytest.raises(Refused, match="it is killed"):
            cluster.request(action, 1, 2)


def test_crashed_node_is_reported_and_not_restarted(cluster):
    assert cluster.exited(1, -11) == [Say("node 1 exited unexpectedly: signal 11")]
    assert state(cluster, 1) is State.FAILED


def test_a_start_that_fails_answers_with_the_reason(cluster):
    cluster.request("kill", 1, 1)
    cluster.exited(1, -9)
    cluster.request("start", 1, 2)
    cluster.refused(1, "address in use")
    effects = cluster.exited(1, 1)
    assert effects == [Say("node 1 did not start: address in use"), Answer(2, "address in use")]


def test_error_of_a_node_is_cut_to_what_a_message_holds(cluster):
    cluster.refused(1, "x" * 1_000_000)
    assert len(cluster.nodes[1].error) < 5_000


def test_abandoned_request_gets_no_answer(cluster):
    cluster.request("stop", 1, 1)
    cluster.give_up(1)
    assert cluster.exited(1, 0) == []


def test_down_ends_brokers_first(cluster):
    assert cluster.down() == [Send(1, TERM), Send(1, CONT), Send(2, TERM), Send(2, CONT)]
    assert cluster.down() == []
    with pytest.raises(Refused, match="the cluster is stopping"):
        cluster.request("start", 1, 1)
    assert cluster.exited(1, 0) == []
    assert cluster.exited(2, 0) == [Send(101, TERM), Send(101, CONT)]
    assert cluster.exited(101, 0) == [AllEnded()]


def test_down_with_a_broker_that_does_not_stop(cluster):
    cluster.down()
    assert cluster.end_controllers() == [Send(101, TERM), Send(101, CONT)]
    assert cluster.exited(101, 0) == []
    assert cluster.kill_all() == [Send(1, KILL), Send(2, KILL)]
    cluster.exited(1, -9)
    assert cluster.exited(2, -9) == [AllEnded()]


def test_down_of_what_is_down_ends_at_once(cluster):
    for node_id in cluster.nodes:
        cluster.request("kill", node_id, node_id)
        cluster.exited(node_id, -9)
    assert cluster.down() == [AllEnded()]


def test_cut_off_and_reconnect_wait_for_the_nodes_word(cluster):
    assert cluster.request("cut-off", 1, 1) == [Tell(1, "cut-off")]
    assert not cluster.nodes[1].cut_off
    assert cluster.network(1, True, None) == [Answer(1)]
    assert cluster.nodes[1].cut_off and state(cluster, 1) is State.RUNNING
    with pytest.raises(Refused, match="node 1 is cut off"):
        cluster.request("cut-off", 1, 2)
    assert cluster.request("reconnect", 1, 3) == [Tell(1, "reconnect")]
    assert cluster.network(1, False, None) == [Answer(3)]
    with pytest.raises(Refused, match="node 1 is not cut off"):
        cluster.request("reconnect", 1, 4)


def test_a_cut_that_fails_or_is_overtaken_by_the_end_is_answered(cluster):
    cluster.request("cut-off", 1, 1)
    assert cluster.network(1, True, "not here") == [Answer(1, "not here")]
    assert not cluster.nodes[1].cut_off
    cluster.request("cut-off", 1, 2)
    cluster.network(1, True, None)
    cluster.request("reconnect", 1, 3)
    assert cluster.request("kill", 1, 4) == [Send(1, KILL)]
    assert cluster.exited(1, -9) == [Answer(4), Answer(3, "node 1 is killed")]
    # A new process is connected to the network.
    assert not cluster.nodes[1].cut_off
    cluster.request("pause", 2, 5)
    with pytest.raises(Refused, match="node 2 is paused"):
        cluster.request("cut-off", 2, 6)


# --- every state, and any two requests after it ------------------------------------------------


class Does(NamedTuple):
    """The effects of a request in a state: signals or messages, the next state, and the awaited
    event.

    Without an awaited event the request is answered at once.
    """

    effects: list[object]
    after: str
    waits: str = ""


ENDS = Does([Send(1, TERM), Send(1, CONT)], "stopping", "end")
KILLS = Does([Send(1, KILL)], "killing", "end")
LAUNCHES = Does([Launch(1)], "starting", "ready")
ACTIONS = ("start", "stop", "kill", "pause", "resume", "cut-off", "reconnect")
TABLE = {
    "starting": {"stop": ENDS, "kill": KILLS, "pause": Does([Send(1, STOP)], "paused early")},
    "running": {
        "stop": ENDS,
        "kill": KILLS,
        "pause": Does([Send(1, STOP)], "paused"),
        "cut-off": Does([Tell(1, "cut-off")], "running", "cut-off"),
    },
    "cut off": {
        "stop": ENDS,
        "kill": KILLS,
        "pause": Does([Send(1, STOP)], "paused cut off"),
        "reconnect": Does([Tell(1, "reconnect")], "cut off", "reconnect"),
    },
    "paused": {"stop": ENDS, "kill": KILLS, "resume": Does([Send(1, CONT)], "running")},
    "paused early": {"stop": ENDS, "kill": KILLS, "resume": Does([Send(1, CONT)], "starting")},
    "paused cut off": {"stop": ENDS, "kill": KILLS, "resume": Does([Send(1, CONT)], "cut off")},
    "stopping": {"stop": ENDS, "kill": KILLS},
    # A kill is not taken back: a later stop kills as well.
    "killing": {"stop": KILLS, "kill": KILLS},
    "stopped": {"start": LAUNCHES},
    "killed": {"start": LAUNCHES},
    "failed": {"start": LAUNCHES},
}
"""Effects by state and action; any other action is refused."""
SHOWN = {
    "paused early": State.PAUSED,
    "paused cut off": State.PAUSED,
    "cut off": State.RUNNING,
    "killing": State.STOPPING,
}
DOWN = {"stopped", "killed", "failed"}


def shown(name):
    """Return the state that the supervisor shows for a state of the table."""
    return SHOWN[name] if name in SHOWN else State(name)


END_OF = {"stopping": State.STOPPED, "killing": State.KILLED}


def one_node(state_name):
    """Return a cluster of one node in this state."""
    made = NodeProcesses([NodeProcess(1, is_broker=True, is_controller=True)])
    made.start_all()
    made.started(1, 1001)
    if state_name not in ("starting", "paused early"):
        made.ready(1, {})
    if "cut off" in state_name:
        made.network(1, True, None)
    before = {"paused": "pause", "stopping": "stop", "stopped": "stop"}
    before |= {"killing": "kill", "killed": "kill"}
    action = before.get(state_name.split()[0])
    if action is not None:
        made.request(action, 1, 0)
        made.give_up(0)
    if state_name in DOWN:
        made.exited(1, 0)
    assert made.nodes[1].state is shown(state_name)
    return made


@pytest.mark.parametrize("begin", TABLE)
def test_two_requests_send_the_signals_and_get_the_answers_of_the_table(begin):
    """Class 9 of the planted bugs: the order of kill and stop."""
    for first, second in itertools.product(ACTIONS, ACTIONS):
        check_two_requests(begin, first, second)


def check_two_requests(begin, first, second):
    cluster = one_node(begin)
    state_name, waiting = begin, []
    for token, action in ((1, first), (2, second)):
        does = TABLE[state_name].get(action)
        if does is None:
            with pytest.raises(Refused):
                cluster.request(action, 1, token)
            continue
        answer = [] if does.waits else [Answer(token)]
        assert cluster.request(action, 1, token) == [*does.effects, *answer]
        if does.waits:
            waiting.append((token, does.waits))
        state_name = does.after
        assert state(cluster, 1) is shown(state_name)
    final = shown(state_name) if state_name in DOWN else END_OF.get(state_name, State.FAILED)
    if state_name not in DOWN:
        answers = [one for one in cluster.exited(1, -9) if isinstance(one, Answer)]
        error = f"node 1 is {final}"
        assert sorted(answers) == sorted(
            Answer(token, None if what == "end" else error) for token, what in waiting
        )
    assert state(cluster, 1) is final
    assert not cluster.nodes[1].ready and cluster.nodes[1].pid is None
    # Each is answered once.
    assert not any(isinstance(one, Answer) for one in cluster.request("start", 1, 3))
    assert cluster.ready(1, {}) == [
        Answer(3),
        *([AllReady()] if begin in ("starting", "paused early") else []),
    ]


@pytest.mark.parametrize("begin", TABLE)
def test_down_after_a_request_ends_what_runs_and_refuses_the_rest(begin):
    for first in ("", *ACTIONS):
        check_down_after(begin, first)


def check_down_after(begin, first):
    cluster = one_node(begin)
    does = TABLE[begin].get(first)
    if does is not None:
        cluster.request(first, 1, 1)
    now = begin if does is None else does.after
    if now in DOWN:
        assert cluster.down() == [AllEnded()]
        return
    assert cluster.down() == ([] if now in END_OF else list(ENDS.effects))
    for action in ACTIONS:
        with pytest.raises(Refused, match="the cluster is stopping"):
            cluster.request(action, 1, 2)
    ended = cluster.exited(1, 0)
    assert ended[-1] == AllEnded()
    assert [one.token for one in ended if isinstance(one, Answer)] == (
        [1] if does is not None and does.waits else []
    )
    assert state(cluster, 1) is END_OF.get(now, State.STOPPED)
