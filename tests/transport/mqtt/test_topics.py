"""Topics keep federations and identities apart, and refuse names that would reach beyond their level."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.transport.errors import BadSetting
from veilsum.transport.mqtt.topics import Topics

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)


@given(receiver=names, sender=names)
def test_the_sender_of_a_datagram_is_read_back_by_its_receiver_only(receiver: str, sender: str) -> None:
    topics = Topics("one")
    topic = topics.datagrams(receiver, sender)
    assert topics.sender_of(topic, receiver) == sender
    assert topics.sender_of(topic, receiver + "x") is None
    assert Topics("another").sender_of(topic, receiver) is None


@given(party=names)
def test_status_and_gone_topics_are_told_apart(party: str) -> None:
    topics = Topics("one")
    assert topics.party_of_status(topics.status(party)) == party
    assert topics.party_of_gone(topics.gone(party)) == party
    assert topics.party_of_status(topics.gone(party)) is None
    assert topics.sender_of(topics.status(party), party) is None


@pytest.mark.parametrize("name", ["", "+", "#", "a/b", "../a", "a b", "-a", "ä", "a\n", "x" * 65, "$SYS"])
def test_names_that_are_not_one_plain_level_are_refused(name: str) -> None:
    with pytest.raises(BadSetting, match="1 to 64"):
        Topics("one").datagrams(name, "a")
    with pytest.raises(BadSetting, match="1 to 64"):
        Topics("one").access_rules(name)
    assert Topics("one").sender_of(f"veilsum/{Topics('one').federation}/a/from/{name}", "a") is None


def test_the_federation_is_hashed_and_must_have_a_name() -> None:
    assert Topics("secret project").federation != Topics("other project").federation
    assert "secret" not in Topics("secret project").all_statuses()
    with pytest.raises(BadSetting, match="federation"):
        Topics("")


def test_an_identity_may_write_under_its_own_name_only() -> None:
    written = [rule.pattern for rule in Topics("one").access_rules("alice") if rule.may_write]
    assert written
    assert all("alice" in pattern for pattern in written)
    read = [rule.mosquitto() for rule in Topics("one").access_rules("alice") if not rule.may_write]
    assert any(line.startswith("topic read ") and line.endswith("/alice/from/+") for line in read)
