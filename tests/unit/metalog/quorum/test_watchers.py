"""Callbacks for changes of a quorum replica."""

from __future__ import annotations

from metalog.quorum.watchers import Watchers


def test_log_watcher_that_undoes_itself_does_not_stop_the_others() -> None:
    watchers, called = Watchers(), list[str]()

    def once() -> None:
        called.append("once")
        undo()

    undo = watchers.watch_log(once)
    watchers.watch_log(lambda: called.append("always"))
    watchers.log_changed()
    watchers.log_changed()
    assert called == ["once", "always", "always"]
    assert watchers.log_count == 1


def test_each_kind_of_change_has_its_own_callbacks() -> None:
    watchers, called = Watchers(), list[object]()
    watchers.watch_leader(lambda: called.append("leader"))
    watchers.watch_gone(called.append)
    watchers.log_changed()
    watchers.voter_gone(7)
    watchers.leader_changed()
    assert called == [7, "leader"]
