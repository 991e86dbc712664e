"""One training for all attempts of a round."""

from __future__ import annotations

import numpy as np

from tests.support.refusals import require_mentions
from veilsum.protocol.agreed.parameters import Weights
from veilsum.protocol.errors import LocalProtocolError, ProtocolError
from veilsum.protocol.machines.events import Event, TrainingRequested, Warned
from veilsum.protocol.machines.local_training import LocalTraining
from veilsum.protocol.numbers.model import LocalResult

MODEL = np.zeros(3, dtype=np.float32)
RESULT = LocalResult(np.ones(3, dtype=np.float32), 7)
FIRST, SECOND = (0, b"model"), (1, b"model")


def heard(name: str) -> list[Event]:
    return [Warned(name)]


def ask(training: LocalTraining, name: str, which: tuple[int, bytes] = FIRST) -> list[Event]:
    def failed(error: ProtocolError, now: float) -> list[Event]:
        return heard(f"{name}: {error}")

    return training.request(which, MODEL, lambda result, now: heard(name), failed, 0.0)


def request_in(events: list[Event]) -> TrainingRequested:
    (request,) = events
    assert isinstance(request, TrainingRequested)
    return request


def test_the_attempt_that_waits_gets_the_result_of_an_earlier_ones_request() -> None:
    training = LocalTraining(Weights.SAMPLES)
    request = request_in(ask(training, "first attempt"))
    assert ask(training, "second attempt") == []
    assert request.then(RESULT, 1.0) == heard("second attempt")


def test_a_result_that_is_here_is_given_at_once() -> None:
    training = LocalTraining(Weights.SAMPLES)
    request_in(ask(training, "first attempt")).then(RESULT, 1.0)
    assert ask(training, "second attempt") == heard("second attempt")


def test_a_failure_reaches_who_waits_and_the_next_attempt_may_try_again() -> None:
    training = LocalTraining(Weights.SAMPLES)
    request = request_in(ask(training, "attempt"))
    assert request.failed(LocalProtocolError("diverged"), 1.0) == heard("attempt: diverged")
    request_in(ask(training, "next attempt"))


def test_a_result_of_a_round_that_is_over_reaches_nobody() -> None:
    training = LocalTraining(Weights.SAMPLES)
    late = request_in(ask(training, "first round"))
    training.forget()
    request = request_in(ask(training, "second round", SECOND))
    assert late.then(RESULT, 1.0) == []
    assert late.failed(LocalProtocolError("late"), 1.0) == []
    assert request.then(RESULT, 2.0) == heard("second round")


def test_a_result_of_another_length_than_the_model_is_a_failure_of_the_party_itself() -> None:
    training = LocalTraining(Weights.SAMPLES)
    request = request_in(ask(training, "attempt"))
    (told,) = request.then(LocalResult(RESULT.payload[:2], 7), 1.0)
    assert isinstance(told, Warned)
    require_mentions(told.text, "attempt", "training", 2)
    request_in(ask(training, "next attempt"))
