"""The updates and sums in the messages of a view, as the scheme reads its own messages."""

from __future__ import annotations

from collections.abc import Iterator

from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.wire.carried import Carried
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.facts import config_of


def uploads_in(view: View, round_: int | None = None) -> Iterator[tuple[str, Stamp, Carried]]:
    """Of every message that came to a member and carries its sender's update: whose, of which attempt, and what."""
    scheme = config_of(view.facts).load_scheme()
    for sender, message in view.received(Message, round_):
        carried = scheme.carries(message) if sender != SERVER else None
        if carried is not None and not carried.members:
            yield sender, message.stamp, carried


def sums_in(view: View, round_: int | None = None) -> Iterator[tuple[int, Carried]]:
    """Of every message of a member's that carries what was made of several updates: of which round, and what."""
    scheme = config_of(view.facts).load_scheme()
    for source in (view.sent, view.received):
        for _, message in source(Message, round_):
            carried = scheme.carries(message)
            if carried is not None and carried.members:
                yield message.stamp.round, carried


def why_no_gradient(view: View) -> str:
    """What a view holds in which no gradient was found, in words that are true of any scheme."""
    if not view.members:
        return "it holds envelopes only"
    scheme = config_of(view.facts).load_scheme()
    if scheme.perturbs and SERVER in view.members and not view.perturbation_secrets:
        return "its uploads are perturbed, and the view holds no perturbation key"
    if any(uploads_in(view)):
        return f"its uploads are no vectors of the model's length: say in {scheme.name} what they carry (`carries`)"
    if type(scheme).carries is Scheme.carries and any(view.received(Message)):
        return f"no message has a vector: say in {scheme.name} what its messages carry (`carries`)"
    return "it holds no update of anyone else"
