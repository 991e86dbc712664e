"""The process of a client of a federation on disk, its driver, and a transport that carries next to nothing."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tests.support.federations import make_federation
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.machines.rules import RoleParts
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.process import run as process
from veilsum.roles.process.checkpoint import StateFolder
from veilsum.roles.process.context import RoleOptions, enter_role
from veilsum.roles.process.driver import Driver
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.roles.process.envelopes import EnvelopeCodec
from veilsum.roles.process.machines import make_machine, rules_of
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.transport.base import Buffer, ConnectionRequest, Datagram, Received
from veilsum.transport.errors import TooLarge


class LostStatuses:
    """A transport that refuses the first status, takes the second, and ends the telling."""

    address = "p1"

    def __init__(self, request: ConnectionRequest | None = None) -> None:
        self.request = request
        self.told: list[bytes] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def send(self, receiver: str, payload: Sequence[Buffer], deadline_s: float) -> None:
        raise AssertionError("nothing is sent here")

    async def receive(self) -> Received:
        raise AssertionError("nothing is received here")

    async def statuses(self) -> AsyncIterator[Datagram]:
        raise AssertionError("nobody listens here")
        yield

    async def publish_status(self, status: bytes) -> None:
        self.told.append(status)
        if len(self.told) == 1:
            raise TooLarge("status", len(status), 1, "the limit of a status")
        raise asyncio.CancelledError


def make_process(folder: Path, said: io.StringIO) -> process.RoleProcess:
    """The process of a client of a federation on disk, up to the point where it would connect."""
    make_federation(folder, "plain", 2)
    context = enter_role(Role.CLIENT, RoleOptions(folder, "p1"))
    config = context.loaded.config
    rules = rules_of(config, context.loaded.roster, 40)
    return process.RoleProcess(
        context=context,
        scheme=config.load_scheme(),
        rules=rules,
        state=PersistentState(0, None),
        checkpoints=StateFolder(folder / "state", context.name, config.agreed_digest),
        codec=EnvelopeCodec(context.identity, rules.roster, rules.parameters.config_hash),
        learner=None,
        log=RoleLog(context.name, "json", said),
        open_transport=LostStatuses,
        equipment=None,
        optimizer=None,
    )


def make_driver(role: process.RoleProcess, transport: LostStatuses) -> Driver:
    executor = ThreadPoolExecutor(1)
    return Driver(
        party=role.context.name,
        machine=make_machine(
            role.scheme,
            role.rules,
            RoleParts(role.context.identity, SeededEntropy(1), lambda model, mean, round_number: model),
            role.state,
        ),
        codec=role.codec,
        transport=transport,
        state=role.state,
        checkpoints=role.checkpoints,
        executor=executor,
        disk=executor,
        log=role.log,
    )
