"""First-order solvers: epochs of steps in compiled code, learning-rate schedules, and recovery from divergence."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from meshnn.arguments import known
from meshnn.arrays import Array, FloatArray
from meshnn.codes import StepRule
from meshnn.engine import Optimizer
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.plan import METHODS
from meshnn.storage import Tree
from meshnn.training import state as s
from meshnn.training.samples import Epoch, Samples
from meshnn.training.solvers.base import Change, Progress, Solver, SolverRun, carried, penalised_parameters, sizes_of

if TYPE_CHECKING:
    from meshnn.training.settings import Settings

_Below1 = Annotated[float, s.Interval(0, 1, "[)")]
_Factor = Annotated[float, s.Interval(0, 1, "(]")]


@dataclass
class _Moments:
    """The moments of the gradient, and the state of the random generator."""

    done: s.Count  # number of steps
    random: s.RandomState
    first: s.Parameters
    second: Annotated[Array, s.Vector("parameters", within=s.Interval(0, math.inf))]


@dataclass
class _Snapshot:
    """The weights after an epoch, with the moments that belong to them."""

    moments: _Moments
    epoch: s.Count
    weights: s.Parameters


@dataclass
class _PartialEpoch:
    """An unfinished epoch of samples that are not in memory."""

    at: _Snapshot
    piece: s.Count
    sums: tuple[s.Real, s.Real, s.Real]
    order: Any


@dataclass
class _StepsMemory:
    """The state that `partial_fit` continues from."""

    moments: _Moments
    factor: _Factor


@dataclass
class _StepsState:
    """The complete state of a run, as in checkpoints."""

    now: _Snapshot  # after the last row
    safe: _Snapshot  # restored if the loss diverges: the weights of the lowest loss
    safe_loss: Annotated[float, s.Interval(0, math.inf, nan=True)]
    factor: _Factor  # of the learning rate: halved at every divergence
    retries: Annotated[int, s.Interval(0, 5)]
    edited: str  # the gradient method since the graph has changed, else ""
    landing: tuple[s.Count, s.Count]  # first and last epoch of the early decay of the rate
    landed: str  # the reason for the early decay, else ""
    inside: _PartialEpoch | None


@dataclass
class FirstOrder(Solver):
    """Gradient steps on batches with a learning-rate schedule; `rule` selects the update rule."""

    learning_rate: s.Positive = 0.007
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    streams = True
    memory_type = _StepsMemory

    @abstractmethod
    def rule(self) -> tuple[int, tuple[float, float], float]:
        """Return the code (see `meshnn.codes`), betas and epsilon of the update rule."""

    @property
    def decays_to_zero(self) -> bool:
        """Whether the schedule ends at 0."""
        return self.schedule != "constant"

    def schedule_factor(self, progress: float) -> float:
        """Return the factor of the learning rate after a fraction `progress` of all steps."""
        if self.schedule == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * progress))
        return 1.0 - progress if self.schedule == "linear" else 1.0

    def start(self, mesh: Mesh, samples: Samples, settings: Settings, rng: np.random.Generator) -> FirstOrderRun:
        """Begin to train a mesh on a data set."""
        return FirstOrderRun(self, mesh, samples, settings, rng)


@dataclass
class Adam(FirstOrder):
    """`solver="adam"` (Kingma and Ba, 2015).

    Parameters
    ----------
    learning_rate : float
        The initial learning rate.
    schedule : "cosine", "linear" or "constant"
        The decay of the learning rate to 0 over the epochs; "constant" disables it.
    betas : (float, float)
        Decay rates of the moving averages of gradients and of squared gradients.
    epsilon : float
        Added to the denominator of a step.

    Examples
    --------
    >>> from meshnn.training import Adam
    >>> Adam(learning_rate=0.01).get_params()["schedule"]
    'cosine'
    """

    betas: tuple[_Below1, _Below1] = (0.9, 0.999)
    epsilon: s.FromZero = 1e-8
    name = "adam"

    def rule(self) -> tuple[int, tuple[float, float], float]:
        """Return code, betas and epsilon of a step."""
        return StepRule.ADAM, (float(self.betas[0]), float(self.betas[1])), float(self.epsilon)


@dataclass
class SGD(FirstOrder):
    """`solver="sgd"`, gradient descent with momentum.

    Parameters
    ----------
    learning_rate, schedule
        As for `Adam`.
    momentum : float
        The factor of the velocity per step.
    nesterov : bool
        Whether to use Nesterov's momentum.

    Examples
    --------
    >>> from meshnn.training import SGD
    >>> SGD(learning_rate=0.1).set_params(momentum=0.5)
    SGD(learning_rate=0.1, schedule='cosine', momentum=0.5, nesterov=True)
    """

    momentum: _Below1 = 0.9
    nesterov: bool = True
    name = "sgd"

    def rule(self) -> tuple[int, tuple[float, float], float]:
        """Return code, betas and epsilon of a step."""
        return StepRule.NESTEROV if self.nesterov else StepRule.MOMENTUM, (float(self.momentum), 0.0), 1e-8


class FirstOrderRun(SolverRun):
    """The first-order steps of one restart on one data set."""

    def __init__(
        self, solver: FirstOrder, mesh: Mesh, samples: Samples, settings: Settings, rng: np.random.Generator
    ) -> None:
        self.solver, self.mesh, self.samples, self.rng = solver, mesh, samples, rng
        size = settings.batch_of(samples.count)
        self.steps = samples.steps(mesh, settings.gradient, size, settings.n_jobs)
        code, betas, epsilon = solver.rule()
        self.l2 = settings.fixed_l2
        self.optimizer = Optimizer(
            code=code, betas=betas, epsilon=epsilon, l1=settings.l1, l2=self.l2,
            penalised=penalised_parameters(mesh).astype(mesh.dtype),
            first=np.zeros_like(mesh.parameters), second=np.zeros_like(mesh.parameters),
        )  # fmt: skip
        self.epoch, self.epochs = 0, settings.epochs_of(samples.count, by_steps=True)
        first = samples.glance(mesh, settings.n_jobs) + self.optimizer.penalty(mesh.parameters)
        now = self._snapshot()
        self._state = _StepsState(now, now, first, 1.0, 0, "", (self.epochs, self.epochs), "", None)
        # For small nets the return to Python takes as long as several epochs, so a row of the history covers a block of
        # epochs: about 100 rows, at most 1e9 multiply-adds (0.1 s) per block, because a block cannot be interrupted.
        # A step counts as another 5e4. The limit is work, not time, so that the rows are reproducible.
        self.most = max(1, int(1e9 / (samples.count * self.steps.engine.work + self.steps.batches * 5e4)))
        if not samples.in_memory:
            self.most = 1
        self.every = max(1, min(self.epochs // 100, self.most))

    @property
    def penalties(self) -> FloatArray:  # type: ignore[override]
        """The penalty of each live parameter."""
        return self.l2 * self.optimizer.penalised[self.mesh.live_parameters()].astype(np.float64)

    @property
    def decay_reason(self) -> str:  # type: ignore[override]
        """The reason for the early decay of the learning rate, else ""."""
        return self._state.landed

    @property
    def decay_begins(self) -> bool:  # type: ignore[override]
        """Whether the next row is the first of the early decay."""
        return bool(self.decay_reason) and self.epoch == self._state.landing[0]

    def rewire(self, change: Change) -> None:
        """Continue after the graph has changed; remaining parameters keep their moments."""
        held = self.optimizer
        held.first, held.second = (carried(change.parameters, moment) for moment in (held.first, held.second))
        held.penalised = penalised_parameters(self.mesh).astype(self.mesh.dtype)
        self._recompile(self.steps.engine.plan.method.name)
        self._state.safe = self._state.now = self._snapshot()

    def _recompile(self, method: str) -> None:
        self.steps.rewire(self.mesh.engine("epochs", method, again=True))
        self._state.edited = method

    def _rates(self, epochs: int) -> FloatArray:
        factor, batches = self.solver.schedule_factor, self.steps.batches
        done = np.arange(self.epoch * batches, (self.epoch + epochs) * batches)
        first, last = (epoch * batches for epoch in self._state.landing)
        progress = np.minimum(done, first) / (self.epochs * batches)
        early = np.clip((done - first) / max(last - first, 1), 0.0, 1.0)  # progress of the early decay
        factors = [factor(p) * factor(d) for p, d in zip(progress, early, strict=True)]
        return self.solver.learning_rate * self._state.factor * np.array(factors)

    def set_rate(self, rate: float) -> None:
        """Continue with another learning rate, and reset the reductions after divergence."""
        self.solver = replace(self.solver, learning_rate=rate)
        self._state.factor, self._state.retries = 1.0, 0

    def begin_decay(self, reason: str) -> int:
        """Begin the early decay of the learning rate to 0, over 20% of the epochs so far, at least over 5.

        The decay reduces the noise of the weights that a high learning rate causes.
        """
        last = min(self.epoch + max(round(0.2 * self.epoch), 5), self.epochs)
        if not self.solver.decays_to_zero or last == self.epoch:
            return 0
        self._state.landing, self._state.landed = (self.epoch, last), reason
        return last - self.epoch

    def advance(self, most: int) -> Progress:
        """Run the epochs of a row; if the loss diverges, restore safe weights and halve the learning rate."""
        state = self._state
        left = state.landing[1] - self.epoch
        epochs = min(self.every - self.epoch % self.every, most, left if left > 0 else most)
        before, rates = state.now, self._rates(epochs)
        if self.samples.in_memory:
            order = self.steps.order(self.rng, epochs)
            error, correct, norm = self.steps.epochs(self.mesh.values, self.optimizer, order, rates)[-1].tolist()
        else:
            error, correct, norm = self._epoch_in_pieces(rates)
        loss = error + self.optimizer.penalty(self.mesh.parameters)
        # a finite loss far above the lowest one counts as divergence, too
        if not (loss < 1e4 * (1.0 + state.safe_loss) and np.isfinite(self.mesh.parameters).all()):
            return self._recover(error)
        self.epoch += epochs
        state.now = self._snapshot()
        if loss <= state.safe_loss:
            # The last weights with a finite loss would be too late, because a run diverges long before it overflows.
            # A loss over mini-batches belongs to the weights before their steps, so the snapshot before is safe.
            state.safe, state.safe_loss = state.now if self.steps.batches == 1 else before, loss
        finished = self.decay_reason if self.epoch >= state.landing[1] else ""
        return Progress(loss, correct, norm, float(rates[-1]), finished=finished)

    def _epoch_in_pieces(self, rates: FloatArray) -> tuple[float, float, float]:
        """Run one epoch of samples that are not in memory; record the state after each piece."""
        begun, inside = Epoch(), self._state.inside
        if inside is None:
            order = self.steps.order(self.rng, 1)[0]
        else:  # resumed: the order is already drawn
            self._load_snapshot(inside.at)
            begun, order = Epoch(inside.piece, inside.sums), inside.order

        def report(now: Epoch, done: int) -> None:
            self._state.inside = _PartialEpoch(self._snapshot(), now.piece, now.sums, order)
            if self.pulse is not None:
                self.pulse(done)

        found = self.steps.epoch(self.mesh.values, self.optimizer, order, rates, begun, report)
        self._state.inside = None
        return tuple(found.sums)

    def _recover(self, loss: float) -> Progress:
        """Restore the safe weights after divergence, reset the moments and halve the learning rate."""
        state, reason = self._state, f"the loss became {loss:.3g}"
        self._load_snapshot(state.safe)
        self.epoch, state.inside = state.safe.epoch, None
        if state.retries == 5:
            raise MeshError(
                f"{reason} after epoch {self.epoch}, and again after each of 5 retries with half the rate "
                f"(last {self.solver.learning_rate * state.factor:.2g}); the best weights before that are kept. "
                "Lower learning_rate, scale the features, or use bounded activations such as tanh"
            )
        self.optimizer.forget()
        state.retries += 1
        state.factor *= 0.5
        state.now = self._snapshot()
        rate = self.solver.learning_rate * state.factor
        note = f"{reason}: back to epoch {self.epoch}, rate halved to {rate:.3g}"
        return Progress(math.nan, math.nan, math.nan, rate, note=note)

    def _moments(self) -> _Moments:
        held = self.optimizer
        return _Moments(held.done, self.rng.bit_generator.state, held.first.copy(), held.second.copy())

    def _recall(self, moments: _Moments) -> None:
        held = self.optimizer
        held.done, self.rng.bit_generator.state = moments.done, moments.random
        held.first[:], held.second[:] = moments.first, moments.second

    def _snapshot(self) -> _Snapshot:
        return _Snapshot(self._moments(), self.epoch, self.mesh.parameters.copy())

    def _load_snapshot(self, earlier: _Snapshot) -> None:
        self._recall(earlier.moments)
        self.mesh.parameters[:] = earlier.weights

    def memory(self) -> Tree:
        """Return the state that `partial_fit` continues from."""
        found: Tree = s.to_tree(_StepsMemory(self._moments(), self._state.factor))
        return found

    def recall(self, tree: Tree) -> None:
        """Begin with the memory of an earlier run."""
        found = s.from_tree(_StepsMemory, tree, sizes_of(self.mesh))
        self._recall(found.moments)
        self._state.factor = found.factor
        self._state.safe = self._state.now = self._snapshot()

    def state(self) -> Tree:
        """Return the state with which `restore` continues bit-identically."""
        found: Tree = s.to_tree(self._state)
        return found

    def restore(self, tree: Tree) -> None:
        """Continue from a state; raise MeshError if it is invalid, because files are not trusted."""
        found = s.from_tree(_StepsState, tree, sizes_of(self.mesh), "solver")
        first, last = found.landing
        for name, epoch in (("now", found.now.epoch), ("safe", found.safe.epoch), ("landing", last)):
            if epoch > self.epochs or first > last:
                raise MeshError(f"solver.{name} must be at most {self.epochs}, got {epoch} of {first} to {last}")
        if not found.landed:  # no early decay; the maximum number of epochs may have changed
            found.landing = (self.epochs, self.epochs)
        if found.inside is not None:
            found.inside.order = self.steps.checked(found.inside.order)
        self._state = found
        if found.edited:  # "auto" could choose another method, which rounds differently
            self._recompile(known("solver.edited", found.edited, METHODS))
        self._load_snapshot(found.now)
        self.epoch = found.now.epoch
