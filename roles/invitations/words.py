"""Twelve words that stand for 128 bits, to be read over the telephone.

The words are those of BIP 39: 2048 of them, told apart by their first four letters, and four bits of the last one check
the others. Two people compare them, or one types what the other reads: this comparison, over a channel on which they
know each other's voice, is all that authenticates a file that came by an untrusted way. 128 bits are enough because an
attacker has to meet the words of a file that exists already, and not to find any two files with the same.

Implements specs/invitations.md, section 3.
"""

from __future__ import annotations

import hashlib

from mnemonic import Mnemonic

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import PublicIdentity
from veilsum.protocol.errors import ParameterError

BYTES = 16
NUMBER = 12
_ENGLISH = Mnemonic("english")
_TELLING = 4
"""So many letters tell a word from all others."""


class WrongWords(ParameterError):
    """What was typed is not what the file stands for; nothing of the file was used."""


def words_of(use: str, digest: bytes) -> str:
    """The words of a digest, which mean nothing for another use."""
    found = hashlib.sha256(length_prefixed(domain_tag("words"), use.encode(), digest)).digest()
    return _ENGLISH.to_mnemonic(found[:BYTES])


def words_of_identity(identity: PublicIdentity) -> str:
    """The words of a party's public keys, its name and its role."""
    return words_of("identity", identity.digest)


def require_words(typed: str, expected: str, what: str, remedy: str) -> None:
    """Refuse other words than the expected ones; four letters of a word are enough."""
    given, wanted = typed.lower().replace(",", " ").split(), expected.split()
    if len(given) != NUMBER:
        raise WrongWords(
            [f"{what} has {NUMBER} words, {len(given)} were typed: type all that were read to you"]
        )
    strange = [word for word in given if not _listed(word)]
    if strange:
        raise WrongWords([f"no word of {what} is {', '.join(strange)}: ask for it again"])
    wrong = [str(place) for place, pair in enumerate(zip(given, wanted, strict=True), 1) if not _same(*pair)]
    if wrong:
        raise WrongWords(
            [
                f"words {', '.join(wrong)} are not those of {what}: ask for them again; if they stay wrong, {remedy}"
            ]
        )


def _same(typed: str, word: str) -> bool:
    return typed == word or (len(typed) >= _TELLING and word.startswith(typed))


def _listed(typed: str) -> bool:
    return any(_same(typed, word) for word in _ENGLISH.wordlist)
