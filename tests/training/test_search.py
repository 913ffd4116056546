"""The search for penalties and solvers on hold-out sets."""

import math

import numpy as np
import pytest

from meshnn import Mesh, MeshClassifier, MeshError, Topology
from meshnn.training import LM, SGD, Adam, Settings, search
from meshnn.training.api import as_samples
from meshnn.training.solvers import Choice


def net(n_outputs=2, dtype="float32"):
    return Mesh(Topology.mesh(3, 4, n_outputs), activation="tanh", dtype=dtype, random_state=0)


def classes(n, shares=(0.5, 0.5), seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(shares)), [round(n * s) for s in shares])
    return rng.normal(size=(len(y), 3)), rng.permutation(y)


def samples_of(n, shares=(0.5, 0.5), weight=None):
    X, y = classes(n, shares)
    return as_samples(net(len(shares)), X, y, "cross_entropy", weight)


@pytest.mark.parametrize(("n", "folds"), [(60, 5), (502, 3), (1600, 1), (9000, 1)])
def test_folds_hold_out_every_class_evenly(n, folds):
    samples = samples_of(n, (0.7, 0.3))
    found = search._folds(samples, 0)
    assert len(found) == folds
    for learned, held_out in found:
        assert learned.count + held_out.count == min(samples.count, search.LIMITS.rows)
        assert np.isclose(learned.targets.share.sum(), 1, atol=1e-3)
        assert np.isclose(held_out.targets.share.sum(), 1, atol=1e-3)
        assert abs(held_out.targets.values.mean() - 0.3) < 0.1
        both = np.concatenate((learned.X[0], held_out.X[0]))
        assert len(np.unique(both, axis=0)) == len(both)
    if folds > 1:
        everything = np.concatenate([held_out.X[0] for _, held_out in found])
        assert np.array_equal(np.sort(everything[:, 0]), np.sort(samples.X[0][:, 0]))


def test_nothing_is_held_out_of_very_few():
    samples = samples_of(6)
    assert search.search(net(), samples, Settings(), Choice(LM(), ""), 0) is None
    model = MeshClassifier(hidden=2, solver="adam", max_epochs=2, random_state=0).fit(samples.X[0], [0, 1] * 3)
    assert np.isclose(model.l2_, search.LIMITS.usual / 6)


def test_copies_of_a_sample_are_held_out_together():
    X, y = classes(40)
    samples = as_samples(net(), np.tile(X, (5, 1)), np.tile(y, 5), "cross_entropy")
    for learned, held_out in search._folds(samples, 0):
        assert not set(map(tuple, learned.X[0])) & set(map(tuple, held_out.X[0]))
    digits = np.random.default_rng(0).integers(0, 2, size=(200, 3)).astype(float)  # similar, but not equal
    assert len(np.unique(search._copies(digits[None]))) == 200


class FixedLosses(search._Search):
    """A search with given losses."""

    def __init__(self, loss, alone=math.inf, n=400, n_samples=None, trained=None):
        samples = samples_of(n)
        self.asked = []
        self._given, self._lm = loss, alone
        super().__init__(net(), Settings(), search._folds(samples, 0), n, n / (n_samples or n), 0)

    def _trial(self, kind, l2, fold):
        self.asked.append((l2, fold))
        return self._given(l2, fold)

    def _evidence_trial(self, kind, fold, beat, most):
        return self._lm


def valley(best):
    return lambda l2, fold: 1.0 + abs(math.log10(l2 / best)) ** 2


@pytest.mark.parametrize("best", search.GRID[::3])
def test_the_lowest_loss_is_found_wherever_it_is(best):
    found = FixedLosses(valley(best)).run(Choice(Adam(), ""))
    assert (found.solver, found.l2) == (Adam(), best)


def test_a_penalty_that_is_clearly_worse_is_not_tried_on_all_folds():
    trials = FixedLosses(lambda l2, fold: 1.0 if l2 == 0.1 else 10.0)
    assert trials.run(Choice(Adam(), "")).l2 == 0.1
    assert [fold for l2, fold in trials.asked if l2 == 0.1] == [0, 1, 2, 3, 4]
    assert [fold for l2, fold in trials.asked if l2 == 0.01] == [0, 1]


def test_a_part_of_the_samples_decides_about_a_smaller_penalty():
    found = FixedLosses(valley(0.01), n=5000, n_samples=50_000).run(Choice(Adam(), ""))
    assert np.isclose(found.l2, 0.001)


@pytest.mark.parametrize(
    ("default", "alternative", "alone", "solver", "l2"),
    [
        (Adam(), LM(), 0.9, Adam(), 0.01),  # better, but not by enough
        (Adam(), LM(), 0.4, LM(), "auto"),
        (LM(), Adam(), 0.85, LM(), "auto"),
        (LM(), Adam(), 0.95, Adam(), 0.01),  # the difference is too small
        (LM(), Adam(), 1.1, Adam(), 0.01),
        (LM(), None, 0.9, LM(), "auto"),
        (LM(), None, 1.1, LM(), 0.01),  # the solver is given; the better penalty is used
        (SGD(), None, 0.0, SGD(), 0.01),
    ],
)
def test_the_better_solver_is_taken(default, alternative, alone, solver, l2):
    found = FixedLosses(valley(0.01), alone).run(Choice(default, "", alternative))
    assert (found.solver, found.l2) == (solver, l2)


def test_a_trial_learns_from_its_fold_and_forgets_it():
    X = np.random.default_rng(0).normal(size=(90, 3))
    y = (X[:, 0] > 0).astype(int)
    mesh = net()
    before = mesh.values.copy()
    samples = as_samples(mesh, X, y, "cross_entropy")
    found = search.search(mesh, samples, Settings(), Choice(Adam(), ""), 3)
    assert np.array_equal(mesh.values, before)
    again = search.search(mesh, samples, Settings(), Choice(Adam(), ""), 3)
    assert found == again
    tried = search._Search(mesh, Settings(), search._folds(samples, 3), samples.count, 1.0, 3)
    loss = tried._trial(Adam(), 1e-3, 0)
    assert loss < 0.5 * math.log(2)  # and every trial starts from the initial weights
    assert tried._trial(Adam(), 1e-3, 0) == loss


def test_a_worse_lm_is_stopped(monkeypatch):
    """Targets are noise, so lm overfits and the loss of the hold-out set rises from the first check on."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    mesh = net(dtype="float64")
    samples = as_samples(mesh, X, y, "cross_entropy")
    trials = search._Search(mesh, Settings(), search._folds(samples, 0), samples.count, 1.0, 0)
    losses = iter(np.arange(1.0, 100.0))
    monkeypatch.setattr(trials, "_loss", lambda part: next(losses))
    assert trials._evidence_trial(LM(), 0, 0.5, search.LIMITS.long) == 2.0  # clearly worse, and rising


def test_a_trainer_reports_the_penalty_and_uses_it():
    X, y = classes(60)
    model = MeshClassifier(hidden=3, solver="adam", random_state=0).fit(X, y)
    assert model.history_[0].note.startswith("l2 ")
    assert "held-out loss" in model.solver_reason_
    assert model.l2_ in search.GRID
    refit = MeshClassifier(hidden=3, solver="adam", l2=model.l2_, random_state=0).fit(X, y)
    assert np.array_equal(refit.mesh_.weights, model.mesh_.weights)
    assert "held-out" not in refit.solver_reason_


def test_epochs_follow_from_steps():
    settings = Settings()
    assert settings.epochs_of(100, by_steps=True) == 1000  # batches of 32, four of them
    assert settings.epochs_of(10_000, by_steps=True) == 26  # of 64
    assert settings.epochs_of(100_000, by_steps=True) == 15  # of 256
    assert settings.epochs_of(1_000_000, by_steps=True) == 5
    assert settings.epochs_of(100_000_000, by_steps=True) == 2
    assert settings.epochs_of(10_000, by_steps=False) == 300
    assert Settings(max_epochs=7).epochs_of(100, by_steps=True) == 7
    with pytest.raises(MeshError, match=r"max_epochs .*'many'"):
        Settings(max_epochs="many")


def test_trials_end_with_half_of_the_seconds():
    trials = FixedLosses(lambda l2, fold: 1.0)
    trials.until = 0.0  # in the past
    assert trials.run(Choice(Adam(), "", LM())).l2 == search.LIMITS.first[0]
    assert {l2 for l2, _ in trials.asked} == {search.LIMITS.first[0]}


def test_a_net_that_diverges_everywhere_gets_the_strongest_penalty():
    assert FixedLosses(lambda l2, fold: math.inf).run(Choice(Adam(), "")).l2 == max(search.GRID)


def test_few_samples_weigh_less_than_the_prior():
    slightly = lambda l2, fold: 1.0 - 0.002 * (l2 == 1.0)  # noqa: E731
    assert FixedLosses(slightly, n=40).run(Choice(Adam(), "")).l2 != 1.0  # the prior is centred at 5 / 40
    clearly = lambda l2, fold: 2.0 + math.log10(1 / l2)  # noqa: E731
    assert FixedLosses(clearly, n=40).run(Choice(Adam(), "")).l2 == 1.0


def test_rare_classes_get_folds_where_many_samples_would_not():
    assert len(search._folds(samples_of(3000, (0.5, 0.5)), 0)) == 1
    assert len(search._folds(samples_of(3000, (0.98, 0.02)), 0)) == 3
