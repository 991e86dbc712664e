"""The phases of a server and of a participant between rounds, and how they follow each other.

What happens inside a round is the business of the scheme's own tables; here it is one phase, `running`.

Implements specs/protocol.md, section 1.
"""

from __future__ import annotations

from veilsum.protocol.chain.asking import StateGiven, StateWanted
from veilsum.protocol.machines.session import (
    Farewell,
    Hello,
    Invitation,
    Knock,
    RoundOpened,
    SessionOpened,
    Withdrawn,
)
from veilsum.protocol.machines.transitions import Phase, TransitionTable


class ServerPhase(Phase):
    IDLING = "idling"
    OPENING = "opening"
    PREPARING = "preparing"
    RUNNING = "running"
    FINISHING = "finishing"


SERVER_TABLE = TransitionTable(
    "server",
    ServerPhase.IDLING,
    {
        (ServerPhase.IDLING, "start"): (ServerPhase.OPENING, ServerPhase.FINISHING),
        (ServerPhase.IDLING, Knock): (ServerPhase.IDLING,),
        (ServerPhase.OPENING, Knock): (ServerPhase.OPENING,),
        **{
            (ServerPhase.OPENING, trigger): (
                ServerPhase.OPENING,
                ServerPhase.PREPARING,
                ServerPhase.RUNNING,
                ServerPhase.FINISHING,
            )
            for trigger in (Hello, StateGiven, "deadline")
        },
        (ServerPhase.PREPARING, Knock): (ServerPhase.PREPARING,),
        (ServerPhase.PREPARING, Hello): (ServerPhase.PREPARING,),
        (ServerPhase.PREPARING, Withdrawn): (ServerPhase.PREPARING,),
        (ServerPhase.PREPARING, "outcome"): (
            ServerPhase.RUNNING,
            ServerPhase.OPENING,
            ServerPhase.FINISHING,
        ),
        (ServerPhase.RUNNING, Knock): (ServerPhase.RUNNING,),
        (ServerPhase.RUNNING, Hello): (ServerPhase.RUNNING,),
        (ServerPhase.RUNNING, Withdrawn): (ServerPhase.RUNNING,),
        (ServerPhase.RUNNING, "outcome"): (ServerPhase.RUNNING, ServerPhase.OPENING, ServerPhase.FINISHING),
        (ServerPhase.FINISHING, Knock): (ServerPhase.FINISHING,),
    },
)


class ParticipantPhase(Phase):
    KNOCKING = "knocking"
    GREETING = "greeting"
    PREPARING = "preparing"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHING = "finishing"


_ANYWHERE = (
    ParticipantPhase.KNOCKING,
    ParticipantPhase.GREETING,
    ParticipantPhase.PREPARING,
    ParticipantPhase.WAITING,
    ParticipantPhase.RUNNING,
)

PARTICIPANT_TABLE = TransitionTable(
    "participant",
    ParticipantPhase.KNOCKING,
    {
        **{(phase, Invitation): (ParticipantPhase.GREETING,) for phase in _ANYWHERE},
        **{
            (phase, Farewell): (ParticipantPhase.FINISHING,)
            for phase in (*_ANYWHERE, ParticipantPhase.FINISHING)
        },
        (ParticipantPhase.KNOCKING, "deadline"): (ParticipantPhase.KNOCKING, ParticipantPhase.FINISHING),
        (ParticipantPhase.GREETING, StateWanted): (ParticipantPhase.GREETING,),
        (ParticipantPhase.GREETING, SessionOpened): (ParticipantPhase.PREPARING, ParticipantPhase.WAITING),
        (ParticipantPhase.GREETING, "deadline"): (ParticipantPhase.KNOCKING,),
        (ParticipantPhase.PREPARING, "outcome"): (ParticipantPhase.WAITING,),
        (ParticipantPhase.WAITING, RoundOpened): (ParticipantPhase.RUNNING,),
        (ParticipantPhase.WAITING, "deadline"): (ParticipantPhase.KNOCKING,),
        (ParticipantPhase.RUNNING, "outcome"): (ParticipantPhase.WAITING,),
    },
)
