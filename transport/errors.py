"""What can go wrong between two addresses, each with the name of the address and a remedy."""

from __future__ import annotations


class TransportError(Exception):
    """Base of everything the transport raises on purpose."""


class BadSetting(TransportError):
    """A setting of the transport cannot work; nothing was sent."""

    def __init__(self, setting: str, value: object, allowed: str) -> None:
        self.setting = setting
        self.value = value
        self.allowed = allowed
        super().__init__(f"{setting} = {value!r} is not allowed: {allowed}")


class Unreachable(TransportError):
    """A receiver did not acknowledge a message by its deadline; it may or may not have got it."""

    def __init__(self, receiver: str, detail: str) -> None:
        self.receiver = receiver
        self.detail = detail
        super().__init__(f"{receiver} did not acknowledge in time: {detail}")


class StateLost(TransportError):
    """What we knew of a receiver did not compute, and was dropped; it may or may not have got the message."""

    def __init__(self, receiver: str, detail: str) -> None:
        self.receiver = receiver
        self.detail = detail
        super().__init__(f"our state for {receiver} was dropped, and what was under way with it: {detail}")


class Displaced(TransportError):
    """A message gave way to newer ones: its receiver acknowledges too slowly, or nothing; it has not got it."""

    def __init__(self, receiver: str, detail: str) -> None:
        self.receiver = receiver
        self.detail = detail
        super().__init__(f"a message for {receiver} gave way to newer ones: {detail}")


class TooLarge(TransportError):
    """A message is larger than what the named limit lets through."""

    def __init__(self, receiver: str, size: int, limit: int, limit_name: str) -> None:
        self.receiver = receiver
        self.size = size
        self.limit = limit
        self.limit_name = limit_name
        super().__init__(f"message of {size} bytes for {receiver} exceeds {limit_name} of {limit} bytes")


class AnnouncedTooLarge(TransportError):
    """A sender announced a message that is longer than any we take; nothing was kept for it."""

    def __init__(self, sender: str, size: int, limit: int) -> None:
        self.sender = sender
        self.size = size
        self.limit = limit
        super().__init__(
            f"{sender} announces a message of {size} bytes, the longest that is taken has {limit}"
        )


class Closed(TransportError):
    """The transport was closed while somebody still waited on it."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(f"the transport of {address} is closed")


class BrokerUnreachable(TransportError):
    """No connection to the broker could be made by the deadline."""

    def __init__(self, broker: str, detail: str) -> None:
        self.broker = broker
        self.detail = detail
        super().__init__(f"no connection to the broker at {broker}: {detail}")


class BrokerRefused(TransportError):
    """The broker, or its TLS handshake, turned us away for a reason that trying again does not change."""

    def __init__(self, broker: str, detail: str) -> None:
        self.broker = broker
        self.detail = detail
        super().__init__(f"the broker at {broker} refused the connection: {detail}")
