"""The life of nodes under a supervisor, as requests and events."""

import signal

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
    """Brokers 1 and 2, controller 101, all running."""
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
    # Ready once more; that the whole cluster is ready was told before.
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
    # Its report may have been on the way.
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
        ("kill", 3, "no node 3; there are 1, 2, 101"),
        ("start", 1, "running already"),
        ("resume", 1, "not paused"),
        ("dance", 1, "invalid action 'dance'; allowed: kill, stop"),
        ("kill", "1", "no node '1'"),
        ("kill", "x", "no node 'x'"),
        ("kill", None, "no node None"),
        ("kill", True, "no node True"),
        ("kill", 1.0, "no node 1.0"),
        ("kill", [1], "no node .1."),
        ("kill", 10**30, "no node 1000"),
        (None, 1, "invalid action None"),
        ({"a": 1}, 1, "invalid action {'a': 1}"),
        ("x" * 1_000_000, 1, "invalid action 'x{79}; allowed"),
    ],
)
def test_what_cannot_be_done_is_refused(cluster, action, node_id, why):
    with pytest.raises(Refused, match=why):
        cluster.request(action, node_id, 1)


def test_nothing_is_done_to_a_node_that_is_down(cluster):
    cluster.request("kill", 1, 1)
    cluster.exited(1, -9)
    for action in ("kill", "stop", "pause", "resume"):
        with pytest.raises(Refused, match="it is killed"):
            cluster.request(action, 1, 2)


def test_a_crash_is_told_and_not_repaired(cluster):
    assert cluster.exited(1, -11) == [Say("node 1 ended by itself: signal 11")]
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


def test_who_gave_up_waiting_is_not_answered(cluster):
    cluster.request("stop", 1, 1)
    cluster.give_up(1)
    assert cluster.exited(1, 0) == []


def test_down_ends_brokers_first(cluster):
    assert cluster.down() == [Send(1, TERM), Send(1, CONT), Send(2, TERM), Send(2, CONT)]
    assert cluster.down() == []
    with pytest.raises(Refused, match="going down"):
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
    # A new process has its network.
    assert not cluster.nodes[1].cut_off
    cluster.request("pause", 2, 5)
    with pytest.raises(Refused, match="node 2 is paused"):
        cluster.request("cut-off", 2, 6)
