from __future__ import annotations

from metalog.quorum.core.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

A, B, OTHER_A = ReplicaKey(1, b"a" * 16), ReplicaKey(2, b"b" * 16), ReplicaKey(1, b"x" * 16)
VOTERS = VoterSet(
    [Voter(B), Voter(A, (("C", VoterEndpoint("h", 1)), ("D", VoterEndpoint("h", 2))))]
)


def test_an_id_with_another_directory_is_not_that_voter() -> None:
    assert VOTERS.is_voter(A) and not VOTERS.is_voter(OTHER_A)
    assert VOTERS.is_voter(ReplicaKey(1))
    assert not VoterSet([Voter(A)]).is_only_voter(OTHER_A)


def test_sets_compare_by_value_and_order_by_id() -> None:
    assert VOTERS.ids == (1, 2)
    assert VoterSet([*VOTERS]) == VOTERS and hash(VOTERS) == hash(VoterSet([*VOTERS]))
    assert VOTERS.with_voter(Voter(OTHER_A)).get(1) == Voter(OTHER_A)


def test_majorities() -> None:
    assert [VoterSet(Voter(ReplicaKey(i)) for i in range(n)).majority for n in (1, 2, 3, 4, 5)] == [
        1,
        2,
        2,
        3,
        3,
    ]


def test_endpoints_by_listener() -> None:
    voter = VOTERS.get(1)
    assert voter is not None
    assert voter.endpoint("D") == VoterEndpoint("h", 2) and voter.endpoint() == VoterEndpoint(
        "h", 1
    )
    assert voter.endpoint("E") is None


def test_how_people_read_them() -> None:
    assert repr(VOTERS) == f"VoterSet({A}, {B})" and str(A).startswith("1@")
