"""Rows about the secrets of server-side perturbation: softmax, factors, signs and masks.

The federation perturbs a trained model, as for the rows about predictions. What is undefended differs from attack to
attack and stands in the row; the null row is the attack on nothing, the oracle is given the server's key, or the defect
that a publication has and this implementation has not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.machines.session import RoundOpened
from veilsum.protocol.numbers.model import Model
from veilsum.roles.learning.models.catalogue import build_model
from veilsum.roles.learning.seeds import derive_seed, generator
from veilsum.roles.learning.training.vectorize import layout, to_vector
from veilsum.roles.views.view import PublicFacts, View
from veilsum.simulations.attacks.carried import uploads_in
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.perturbation.balancedness import HiddenFactors
from veilsum.simulations.attacks.perturbation.cross_entropy import Reals
from veilsum.simulations.attacks.perturbation.keys import PerturbationKeys
from veilsum.simulations.attacks.perturbation.shared_mask import SharedMask, split_difference, unmask
from veilsum.simulations.attacks.perturbation.signs import Recognition, distinguish
from veilsum.simulations.attacks.perturbation.softmax import AskedSoftmax
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.measured import counted_row
from veilsum.simulations.audit.rows.perturbation import (
    TriedPerturbation,
    announce,
    perturbation,
    trained_model,
)
from veilsum.simulations.audit.rows.row import Row, RowKind
from veilsum.simulations.audit.stage import Played, play
from veilsum.simulations.audit.steps import Steps

EXACT_SOFTMAX, NEAR_FACTOR, ALIKE = 1e-3, 0.05, 0.99
ASKED, TRIALS = 8, 16
_MASK_BITS = 32


def softmax_rows(attack: AskedSoftmax, request: Request, steps: Steps) -> Iterator[Row]:
    """Each sample's softmax in the server's hands; the printed exchange was to hide it."""
    announce(request, steps)
    model = trained_model(request, "ce")
    for tried in (TriedPerturbation("ce", 10), TriedPerturbation("ce", 1, exchange="printed", gamma=1.0)):
        played = perturbation(request, tried, model, ASKED)
        view = played.view(request.adversary)
        truth = {name: _softmax(view, model, played, name) for name in played.truth}
        started = time.process_time()
        found = dict(attack.read(view))
        cpu_s = time.process_time() - started
        words = f"softmax of single samples, {tried.exchange} exchange"
        errors = np.concatenate([np.abs(found[name] - truth[name]).max(axis=1) for name in found])
        row = counted_row(request, "attack", words, errors < EXACT_SOFTMAX, cpu_s, threat=repr(view))
        yield replace(row, extra={"softmax_error": float(np.median(errors))})
        if not request.references or tried.exchange != "log":
            continue
        everyone = np.concatenate(list(truth.values()))
        uniform = np.full_like(everyone, 0.1)
        references: tuple[tuple[RowKind, Request, str, Reals], ...] = (
            ("undefended", request.undefended, "nothing is asked: uniform guess", uniform),
            ("null", request, f"{words}: of outputs that are noise", _random_softmax(request, everyone)),
            ("oracle", request, f"{words}: model and samples given", everyone),
        )
        for kind, asked, target, guess in references:
            errors = np.abs(guess - everyone).max(axis=1)
            extra = {"softmax_error": float(np.median(errors))}
            yield counted_row(asked, kind, target, errors < EXACT_SOFTMAX, extra=extra)


def _softmax(view: View, model: Model, played: Played, name: str) -> Reals:
    outputs = Exposed(view.facts, model).logits(played.truth[name]).double()
    found: Reals = outputs.softmax(dim=1).numpy()
    return found


def _random_softmax(request: Request, like: Reals) -> Reals:
    powers: Reals = np.exp(generator(request.seed, "audit outputs").standard_normal(like.shape))
    found: Reals = powers / powers.sum(axis=1, keepdims=True)
    return found


def factor_rows(attack: HiddenFactors, request: Request, steps: Steps) -> Iterator[Row]:
    """The factor of every hidden unit, from one round's perturbed weights and the public first model."""
    announce(request, steps)
    words = f"hidden factors, within {NEAR_FACTOR:.0%}"
    for tried in (TriedPerturbation("mse", 1), TriedPerturbation("ce", mode="scale")):
        played = perturbation(request, tried, trained_model(request, tried.loss))
        view, truth = played.view(request.adversary), _true_factors(played)
        started = time.process_time()
        found = np.concatenate(attack.estimate(view))
        cpu_s = time.process_time() - started
        row = _factor_row(request, f"{words}; {tried}", found, truth)
        yield replace(row, cpu_s=cpu_s, threat=repr(view))
    if request.references:
        ones = np.ones_like(truth)
        yield replace(
            _factor_row(request.undefended, f"{words}: none are used", ones, ones), row="undefended"
        )
        yield replace(_factor_row(request, f"{words}: guessed as one", ones, truth), row="null")
        yield replace(_factor_row(request, f"{words}: read off the key", truth, truth), row="oracle")


def _true_factors(played: Played) -> Reals:
    """A bias has the factor of its unit."""
    view = played.view("server")
    scale = PerturbationKeys(view).of_round(0).scale
    places = layout(Exposed(view.facts, view.initial_model).module)
    biases = [one for one in places if one.name.startswith("features.") and one.name.endswith(".bias")]
    return np.concatenate([scale[one.start : one.stop] for one in biases])


def _factor_row(request: Request, target: str, found: Reals, truth: Reals) -> Row:
    errors = np.abs(np.log(found / truth))
    return counted_row(
        request,
        "attack",
        target,
        errors < np.log1p(NEAR_FACTOR),
        extra={"factor_error": float(np.median(errors))},
    )


def sign_rows(attack: Recognition, request: Request, steps: Steps) -> Iterator[Row]:
    """The game of semantic security, once per round: two models, one of them perturbed under a fresh key."""
    announce(request, steps)
    played = perturbation(
        request, TriedPerturbation("mse", 1), trained_model(request, "mse"), 2, rounds=TRIALS
    )
    view, models = played.view(request.adversary), _models_of_rounds(request, played)
    draw = generator(request.seed, "audit candidates")
    others = [_other_model(view.facts, request.seed, trial) for trial in range(2 * TRIALS)]
    coins = draw.integers(2, size=TRIALS)
    words = "which of two models was perturbed"

    def guess(round_: int, true: Model, other: Model) -> bool:
        pair = (true, other) if coins[round_] == 0 else (other, true)
        return attack.recognise(view, pair, round_) == int(coins[round_])

    started = time.process_time()
    hits = [guess(round_, models[round_], others[round_]) for round_ in range(TRIALS)]
    cpu_s = time.process_time() - started
    yield counted_row(request, "attack", words, hits, cpu_s, threat=repr(view))
    if request.references:
        plain = _received_plain(request, models[0])
        seen = [distinguish([models[0], other], plain) == 0 for other in others[:TRIALS]]
        yield counted_row(request.undefended, "undefended", "the model as received", seen)
        blind = [guess(round_, others[round_], others[TRIALS + round_]) for round_ in range(TRIALS)]
        yield counted_row(request, "null", f"{words}: neither was", blind)
        keys, server = PerturbationKeys(played.view("server")), played.view("server")
        exact = [
            _unperturbed(keys, server, round_, models[round_])
            < _unperturbed(keys, server, round_, others[round_])
            for round_ in range(TRIALS)
        ]
        yield counted_row(request, "oracle", f"{words}: with the server's keys", exact)


def _received_plain(request: Request, model: Model) -> Model:
    view = play(request.unprotected.config(), 1, model=model).view("client")
    received: Model = next(message.model for _, message in view.received(RoundOpened))
    return received


def _models_of_rounds(request: Request, played: Played) -> list[Model]:
    """The true model that each round began with."""
    results = {one.round: one.model for one in played.view("server").results}
    later = [results[round_] for round_ in range(TRIALS - 1)]
    return [trained_model(request, "mse"), *(model for model in later if model is not None)]


def _other_model(facts: PublicFacts, seed: int, trial: int) -> Model:
    name = config_of(facts).model
    assert name is not None
    number = derive_seed(seed, "other model", trial)
    return to_vector(build_model(name, facts.input_shape, facts.outputs, seed=number))


def _unperturbed(keys: PerturbationKeys, server: View, round_: int, candidate: Model) -> float:
    """How far the perturbed model of a round is from the candidate under the round's own key."""
    sent = next(message.model for _, message in server.sent(RoundOpened, round_))
    return float(np.abs(keys.of_round(round_).perturb(candidate.astype(np.float64)) - sent).max())


def mask_rows(attack: SharedMask, request: Request, steps: Steps) -> Iterator[Row]:
    """Two terms of one client under one mask show their difference; here every term has a mask of its own."""
    announce(request, steps)
    tried = TriedPerturbation("mse", 1, gamma=1.0)
    played = perturbation(request, tried, trained_model(request, "mse"), ASKED)
    view = played.view(request.adversary)
    keys, clients = PerturbationKeys(view), played.views.view(*played.config.parties)
    terms = {one.party: one.payload.astype(np.float64) for one in clients.own_updates}
    truth = {name: split_difference(keys, one, unmask) for name, one in terms.items()}
    words = "gradient less beta of one client"
    started = time.process_time()
    found = dict(attack.differences(view))
    cpu_s = time.process_time() - started
    hits = [_alike(found[name], truth[name]) for name in found]
    yield counted_row(request, "attack", words, hits, cpu_s, threat=repr(view))
    if request.references:
        without = request.unmasked
        bare = perturbation(without, tried, trained_model(request, "mse"), ASKED)
        seen = [
            _alike(split_difference(keys, carried.vector.astype(np.float64), unmask), truth[name])
            for name, _, carried in uploads_in(bare.view("server"), 0)
        ]
        yield counted_row(without, "undefended", f"{words}: no masks", seen)
        draw = generator(request.seed, "audit masks")
        blind = [_alike(draw.standard_normal(len(one)), one) for one in truth.values()]
        yield counted_row(request, "null", words, blind)
        shared = [_alike(_under_one_mask(keys, one, draw), truth[name]) for name, one in terms.items()]
        yield counted_row(request, "oracle", f"{words}: one mask for all terms, as published", shared)


def _under_one_mask(keys: PerturbationKeys, terms: Reals, draw: np.random.Generator) -> Reals:
    """The difference of two terms that the publications' single mask covers, in words as they would be sent."""
    words = np.round(terms * 2.0**_MASK_BITS).astype(np.int64).astype(np.uint64)
    mask = draw.integers(0, 2**64 - 1, len(terms), dtype=np.uint64, endpoint=True)

    def masked(gradient: NDArray[np.uint64], beta: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return unmask(gradient + mask[: len(gradient)], beta + mask[: len(beta)])

    return split_difference(keys, words, masked).astype(np.int64) / 2.0**_MASK_BITS


def _alike(found: Reals, truth: Reals) -> bool:
    return bool(np.corrcoef(found, truth)[0, 1] > ALIKE)
