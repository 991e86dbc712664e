"""The topics of one federation on a broker, and who may use them.

    veilsum/<federation>/<receiver>/from/<sender>    datagrams; the sender is a hint
    veilsum/<federation>/<party>/status              what a party tells about itself
    veilsum/<federation>/<party>/gone                the last will of a party
    veilsum/<federation>/organiser/notice            what is handed out to all: the signed roster

`<federation>` is a hash of the federation's identifier, so that federations on one broker never mix and the
broker does not learn what they are called; every login begins with it. A broker that enforces `access_rules` lets each
identity write under its own name and read what is meant for it; nothing relies on that, since every datagram is sealed.

Implements specs/transport.md, section 7.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veilsum.transport.errors import BadSetting

if TYPE_CHECKING:
    from veilsum.transport.base import Address

ROOT = "veilsum"
NOTICES = "organiser"
"""The login that hands out; no party is called so."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH_DIGITS = 32


def require_name(name: Address) -> Address:
    """An address must be safe as one level of a topic and as a user name of a broker."""
    if not _NAME.fullmatch(name):
        raise BadSetting("address", name, "1 to 64 of A-Z a-z 0-9 . _ - beginning with a letter or digit")
    return name


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One line of a broker's access list."""

    may_write: bool
    pattern: str

    def mosquitto(self) -> str:
        return f"topic {'write' if self.may_write else 'read'} {self.pattern}"


class Topics:
    """The topics of one federation; `federation` is any text that names it."""

    def __init__(self, federation: str) -> None:
        if not federation:
            raise BadSetting("federation", federation, "a name that is not empty")
        digest = hashlib.sha256(b"veilsum 1 federation topic\0" + federation.encode()).hexdigest()
        self.federation = digest[:_HASH_DIGITS]
        self._base = f"{ROOT}/{self.federation}"

    def login(self, party: Address) -> str:
        """The user name of a party at the broker, and its client identifier; no two federations share one."""
        return f"{self.federation}-{require_name(party)}"

    def datagrams(self, receiver: Address, sender: Address) -> str:
        return f"{self._base}/{require_name(receiver)}/from/{require_name(sender)}"

    def all_datagrams(self, receiver: Address) -> str:
        return f"{self._base}/{require_name(receiver)}/from/+"

    def status(self, party: Address) -> str:
        return f"{self._base}/{require_name(party)}/status"

    def all_statuses(self) -> str:
        return f"{self._base}/+/status"

    def gone(self, party: Address) -> str:
        return f"{self._base}/{require_name(party)}/gone"

    def all_gone(self) -> str:
        return f"{self._base}/+/gone"

    def notice(self) -> str:
        return f"{self._base}/{NOTICES}/notice"

    def sender_of(self, topic: str, receiver: Address) -> Address | None:
        """Who is named as the sender of a datagram for `receiver`, or None if the topic is anything else."""
        return _last_level(topic, f"{self._base}/{receiver}/from/")

    def party_of_status(self, topic: str) -> Address | None:
        return self._party(topic, "/status")

    def party_of_gone(self, topic: str) -> Address | None:
        return self._party(topic, "/gone")

    def _party(self, topic: str, suffix: str) -> Address | None:
        return _last_level(topic.removesuffix(suffix), f"{self._base}/") if topic.endswith(suffix) else None

    def access_rules(self, party: Address) -> tuple[AccessRule, ...]:
        """Everything that one identity needs, and nothing else."""
        return (
            AccessRule(False, self.all_datagrams(party)),
            AccessRule(False, self.all_statuses()),
            AccessRule(False, self.all_gone()),
            AccessRule(True, f"{self._base}/+/from/{require_name(party)}"),
            AccessRule(True, self.status(party)),
            AccessRule(True, self.gone(party)),
            *self.invited_rules(),
        )

    def invited_rules(self) -> tuple[AccessRule, ...]:
        """What a party may do before it is enrolled: read what is handed out to all."""
        return (AccessRule(False, self.notice()),)

    def notice_rules(self) -> tuple[AccessRule, ...]:
        """What who hands out needs."""
        return (AccessRule(True, self.notice()),)

    def observer_rules(self) -> tuple[AccessRule, ...]:
        """What who only watches needs: to read statuses, and to write nothing."""
        return (AccessRule(False, self.all_statuses()),)


def party_in(topic: str) -> str:
    """Under whose name something was published, in any federation; empty where no topic of ours is like this."""
    levels = topic.split("/")
    if len(levels) == len(("root", "federation", "receiver", "from", "sender")):
        return levels[4]
    return levels[2] if len(levels) == len(("root", "federation", "party", "kind")) else ""


def _last_level(topic: str, base: str) -> Address | None:
    name = topic.removeprefix(base)
    return name if topic.startswith(base) and _NAME.fullmatch(name) else None
