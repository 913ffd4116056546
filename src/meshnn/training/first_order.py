"""Adam and gradient descent with momentum: epochs in compiled code, and what happens when they diverge."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from meshnn.arguments import known, real_number, whole_number
from meshnn.arrays import FloatArray
from meshnn.codes import ADAM, MOMENTUM, NESTEROV
from meshnn.engine import Optimizer
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.plan import METHODS
from meshnn.storage import Tree
from meshnn.training.samples import Epoch, Samples
from meshnn.training.solver import Change, Progress, Solver, any_number

if TYPE_CHECKING:
    from meshnn.training.settings import Settings

__all__ = ["RETRIES", "Adam", "FirstOrder", "Sgd", "penalised_parameters"]

#: How often a run that diverged is taken up again with half the rate, before it gives up.
RETRIES = 5
#: A loss so many times above the lowest one counts as diverged, though it is finite still.
ASTRAY = 1e4
#: Epochs come in blocks, so that a history has about so many rows; but a block has at most so many multiply-adds, some
#: 0.1 s, since nothing can interrupt it. By work, not by time: a run always has the same rows.
ROWS, BLOCK = 100, 1e9
#: Once patience has run out, the rate is brought down over such a share of the epochs there were, and at least so many.
LANDING, SHORTEST = 0.2, 5
#: What a step costs besides its multiply-adds, in multiply-adds.
EPOCH = 5e4


def penalised_parameters(mesh: Mesh) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mask of the parameters that l1 and l2 apply to: all but those of the bias."""
    t = mesh.topology
    edges = np.ones(t.n_edges, np.bool_) if not t.bias else t.src != t.n_inputs
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = mesh.ties.total(edges) > 0
    return found


def carried(origin: Any, values: Any) -> Any:
    """What every parameter had before it got its new number; 0 for new ones."""
    return np.where(origin >= 0, values[np.maximum(origin, 0)], 0).astype(values.dtype)


class FirstOrder(Solver):
    """Steps along the gradient of a batch; how far is for `_rule` to say."""

    streams = scheduled = True
    l2 = 0.0

    def __init__(self, mesh: Mesh, samples: Samples, settings: Settings, rng: np.random.Generator) -> None:
        self.mesh, self.samples, self.settings, self.rng = mesh, samples, settings, rng
        size = settings.batch_of(samples.count)
        self.steps = samples.steps(mesh, settings.gradient, size, settings.n_threads)
        code, betas = self._rule()
        self.optimizer = Optimizer(
            code=code,
            betas=betas,
            epsilon=settings.epsilon,
            l1=settings.l1,
            l2=settings.fixed_l2,
            penalised=penalised_parameters(mesh).astype(mesh.dtype),
            first=np.zeros_like(mesh.parameters),
            second=np.zeros_like(mesh.parameters),
        )
        self.epoch, self.l2 = 0, settings.fixed_l2
        self.epochs = settings.epochs_of(samples.count, by_steps=True)
        self.penalties = self._penalties()
        self.edited = ""  # the method that goes on since the graph has changed
        self.factor = 1.0  # what divergence has left of the rate
        self.landing = (self.epochs, self.epochs)  # epochs between which the rate is brought down early
        self.landed = ""
        self.retries = 0
        self._now = self._snapshot()  # after the last row
        self._inside: Tree | None = None  # an epoch that is under way, of samples that are far away
        first = samples.glance(mesh, settings.n_threads)
        self._safe, self._safe_loss = self._now, first + self.optimizer.penalty(mesh.parameters)  # where it was lowest
        # A small net takes as long to come back to Python as for several epochs.
        self.most = max(1, int(BLOCK / (samples.count * self.steps.engine.work + self.steps.batches * EPOCH)))
        if not samples.in_memory:
            self.most = 1
        self.every = max(1, min(self.epochs // ROWS, self.most))

    @abstractmethod
    def _rule(self) -> tuple[int, tuple[float, float]]:
        """Code and constants of a step, see `meshnn.codes`."""

    def rewire(self, change: Change) -> None:
        """Go on after the graph has changed: parameters that stayed keep what is known of them."""
        held = self.optimizer
        held.first, held.second = (carried(change.parameters, moment) for moment in (held.first, held.second))
        held.penalised = penalised_parameters(self.mesh).astype(self.mesh.dtype)
        self.penalties = self._penalties()
        self._recompile(self.steps.engine.plan.method.name)
        self._safe = self._now = self._snapshot()

    def _penalties(self) -> FloatArray:
        return self.l2 * self.optimizer.penalised[self.mesh.live_parameters()].astype(np.float64)

    def _recompile(self, method: str) -> None:
        self.edited = method
        self.steps.rewire(self.mesh.engine("epochs", method, again=True))

    def _rates(self, epochs: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        settings, batches = self.settings, self.steps.batches
        done = np.arange(self.epoch * batches, (self.epoch + epochs) * batches)
        first, last = (epoch * batches for epoch in self.landing)
        progress = np.minimum(done, first) / (self.epochs * batches)
        down = np.clip((done - first) / max(last - first, 1), 0.0, 1.0)  # over the rest, if it is to end early
        shares = [settings.share_of_rate(p) * settings.share_of_rate(d) for p, d in zip(progress, down, strict=True)]
        return settings.learning_rate * self.factor * np.array(shares)

    def land(self, reason: str) -> int:
        """Bring the rate down to 0 along the schedule, faster: the noise of a high rate hides what was learned."""
        last = min(self.epoch + max(round(LANDING * self.epoch), SHORTEST), self.epochs)
        if self.settings.schedule == "constant" or last == self.epoch:
            return 0
        self.landing, self.landed = (self.epoch, last), reason
        return last - self.epoch

    @property
    def lands(self) -> bool:
        """Whether the next row is the first one with a rate brought down early."""
        return bool(self.landed) and self.epoch == self.landing[0]

    def advance(self, most: int) -> Progress:
        """Run a row's worth of epochs; a loss that is not finite takes it back and halves the rate."""
        left = self.landing[1] - self.epoch
        epochs = min(self.every - self.epoch % self.every, most, left if left > 0 else most)
        before = self._now
        rates = self._rates(epochs)
        if self.samples.in_memory:
            order = self.steps.order(self.rng, epochs)
            error, correct, norm = self.steps.epochs(self.mesh.values, self.optimizer, order, rates)[-1].tolist()
        else:
            error, correct, norm = self._by_pieces(rates)
        loss = error + self.optimizer.penalty(self.mesh.parameters)
        if not (loss < ASTRAY * (1.0 + self._safe_loss) and np.isfinite(self.mesh.parameters).all()):
            return self._take_back(error)
        self.epoch += epochs
        self._now = self._snapshot()
        if loss <= self._safe_loss:
            # Not where the loss was last finite: a run that diverges has gone astray long before it overflows. The
            # loss of mini-batches is that of earlier weights; those they led to are not known to be any good yet.
            self._safe, self._safe_loss = self._now if self.steps.batches == 1 else before, loss
        finished = self.landed if self.epoch >= self.landing[1] else ""
        return Progress(loss, correct, norm, float(rates[-1]), finished=finished)

    def _by_pieces(self, rates: FloatArray) -> tuple[float, float, float]:
        """An epoch of samples that are far away: where it stands is known after each piece."""
        begun, inside = Epoch(), self._inside
        if inside is None:
            order = self.steps.order(self.rng, 1)[0]
        else:  # what was drawn for it has been drawn
            self._remember(inside)
            self.mesh.parameters[:] = inside["weights"]
            begun, order = Epoch(inside["piece"], tuple(inside["sums"])), inside["order"]

        def told(now: Epoch, done: int) -> None:
            where = {"piece": now.piece, "sums": list(now.sums), "order": order}
            self._inside = self._memory() | where | {"weights": self.mesh.parameters.copy()}
            if self.pulse is not None:
                self.pulse(done)

        found = self.steps.epoch(self.mesh.values, self.optimizer, order, rates, begun, told)
        self._inside = None
        return tuple(found.sums)

    def _take_back(self, loss: float) -> Progress:
        self._return_to(self._safe)
        self._inside = None
        what = f"the loss became {loss:.3g}"
        if self.retries == RETRIES:
            raise MeshError(
                f"{what} after epoch {self.epoch}, and again after each of {RETRIES} retries with half the rate "
                f"(last {self.settings.learning_rate * self.factor:.2g}); the best weights before that are kept. "
                "Lower learning_rate, scale the features, or use bounded activations such as tanh"
            )
        self.optimizer.forget()  # moments that led there would lead there again
        self.retries += 1
        self.factor *= 0.5
        self._now = self._snapshot()
        rate = self.settings.learning_rate * self.factor
        note = f"{what}: back to epoch {self.epoch}, rate halved to {rate:.3g}"
        return Progress(float("nan"), float("nan"), float("nan"), rate, note=note)

    def _snapshot(self) -> Tree:
        """Weights, epoch and memory: what a step changes."""
        return self._memory() | {"epoch": self.epoch, "weights": self.mesh.parameters.copy()}

    def _memory(self) -> Tree:
        """What is known about the gradient, and the random stream."""
        held = self.optimizer
        random = self.rng.bit_generator.state
        return {"done": held.done, "random": random, "first": held.first.copy(), "second": held.second.copy()}

    def _remember(self, memory: Tree) -> None:
        held = self.optimizer
        held.done, self.rng.bit_generator.state = memory["done"], memory["random"]
        held.first[:], held.second[:] = memory["first"], memory["second"]

    def _return_to(self, snapshot: Tree) -> None:
        self._remember(snapshot)
        self.epoch, self.mesh.parameters[:] = snapshot["epoch"], snapshot["weights"]

    def state(self, stream: bool = False) -> Tree:
        """Where it stands, where it was last safe, and the rate; of a stream, its memory and the rate."""
        if stream:
            return self._memory() | {"factor": self.factor}
        return {
            "now": self._now,
            "safe": self._safe,
            "factor": self.factor,
            "retries": self.retries,
            "safe_loss": self._safe_loss,
            "edited": self.edited,
            "landing": [*self.landing, self.landed],
            "inside": self._inside,
        }

    def restore(self, state: Tree, stream: bool = False) -> None:
        """Go on from there."""
        if stream:
            checked = self.check_stream(state, self.mesh)
            self._remember(checked)
            self.factor = checked["factor"]
            self._safe = self._now = self._snapshot()
            return
        if state["edited"]:  # another start would choose anew, and round otherwise
            self._recompile(known("method", state["edited"], METHODS))
        self.factor = _share(state["factor"])
        self.retries = whole_number("retries", state["retries"], least=0, most=RETRIES)
        if "landing" in state:  # files of 0.1 know of none
            first, last, self.landed = state["landing"]
            whole_number("landing", last, least=whole_number("landing", first, least=0), most=self.epochs)
            self.landed = str(self.landed)
            if self.landed:  # else it ends with the last epoch, of which there may be more now
                self.landing = (first, last)
        self._safe_loss = any_number("safe_loss", state["safe_loss"], least=0.0)
        self._now, self._safe = (self._checked(state[when]) for when in ("now", "safe"))
        self._return_to(self._now)
        inside = state.get("inside")
        if inside is not None:
            self._inside = _memory(inside, self.mesh) | {
                "weights": _like(self.mesh, inside["weights"]),
                "piece": whole_number("piece", inside["piece"], least=0),
                "sums": [any_number("sum", inside["sums"][k]) for k in range(3)],
                "order": self.steps.checked(inside["order"]),
            }

    def _checked(self, snapshot: Tree) -> Tree:
        epoch = whole_number("epoch", snapshot["epoch"], least=0, most=self.epochs)
        return _memory(snapshot, self.mesh) | {"epoch": epoch, "weights": _like(self.mesh, snapshot["weights"])}

    @classmethod
    def check_stream(cls, state: Tree, mesh: Mesh) -> Tree:
        """What a stream remembers, if it can be that of such a mesh."""
        return _memory(state, mesh) | {"factor": _share(state["factor"])}


class Adam(FirstOrder):
    """`solver="adam"`."""

    name = "adam"

    def _rule(self) -> tuple[int, tuple[float, float]]:
        return ADAM, self.settings.betas


class Sgd(FirstOrder):
    """`solver="sgd"`: gradient descent with momentum."""

    name = "sgd"

    def _rule(self) -> tuple[int, tuple[float, float]]:
        return NESTEROV if self.settings.nesterov else MOMENTUM, (self.settings.momentum, 0.0)


def _memory(stored: Tree, mesh: Mesh) -> Tree:
    """What is known about the gradient, if it can be that of such a mesh: it may come from a file."""
    try:
        np.random.PCG64(0).state = stored["random"]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise MeshError("the stored state of the random stream makes no sense") from None
    done = whole_number("done", stored["done"], least=0, most=2**53)
    moments = {name: _like(mesh, stored[name]) for name in ("first", "second")}
    return {"done": done, "random": stored["random"]} | moments


def _share(factor: Any) -> float:
    return real_number("factor", factor, "a number above 0 and up to 1", lambda v: 0 < v <= 1)


def _like(mesh: Mesh, array: Any) -> Any:
    """One number a parameter, in the precision of the mesh."""
    if array.shape != (mesh.n_parameters,) or array.dtype.kind != "f":
        raise MeshError(f"the stored state has {array.dtype} {array.shape} for {mesh.n_parameters} parameters")
    return array.astype(mesh.dtype)
