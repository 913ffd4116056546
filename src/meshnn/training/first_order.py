"""Adam and gradient descent with momentum: epochs in compiled code, and what happens when they diverge."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshnn.arguments import known, real_number, whole_number
from meshnn.codes import ADAM, MOMENTUM, NESTEROV
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.methods import METHODS
from meshnn.program import Optimizer, Steps
from meshnn.training.settings import Settings
from meshnn.training.solver import Change, Progress, Samples, State, decode, encode

__all__ = ["RETRIES", "FirstOrder", "check_memory", "penalised_edges"]

#: How often a run that diverged is taken up again with half the rate, before it gives up.
RETRIES = 5
#: A loss so many times above the lowest one counts as diverged, though it is finite still.
ASTRAY = 1e4
#: Full-batch epochs come in blocks, so that a history has about so many rows; but a block has at most so many
#: multiply-adds, some 0.1 s, since nothing can interrupt it. By work, not by time: a run always has the same rows.
ROWS, BLOCK = 100, 1e9
#: What an epoch costs besides its multiply-adds, in multiply-adds.
EPOCH = 5e4


def penalised_edges(mesh: Mesh) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mask of the edges that l1 and l2 apply to: all but those of the bias."""
    t = mesh.topology
    return np.ones(t.n_edges, np.bool_) if not t.bias else t.src != t.n_inputs


def carried(origin: Any, values: Any) -> Any:
    """What every edge had before it got its new number; 0 for new edges."""
    return np.where(origin >= 0, values[np.maximum(origin, 0)], 0).astype(values.dtype)


class FirstOrder:
    """`solver="adam"` and `"sgd"`."""

    def __init__(self, mesh: Mesh, samples: Samples, settings: Settings, solver: str, rng: np.random.Generator) -> None:
        self.mesh, self.samples, self.settings, self.rng = mesh, samples, settings, rng
        size = settings.batch_of(samples.count)
        program = mesh.program("epochs", settings.gradient, size)
        self.steps = Steps(program, samples.X, samples.targets, size, settings.n_threads)
        sgd = NESTEROV if settings.nesterov else MOMENTUM
        self.optimizer = Optimizer(
            code=ADAM if solver == "adam" else sgd,
            betas=settings.betas if solver == "adam" else (settings.momentum, 0.0),
            epsilon=settings.epsilon,
            l1=settings.l1,
            l2=settings.fixed_l2,
            penalised=penalised_edges(mesh).astype(mesh.dtype),
            first=np.zeros_like(mesh.weights),
            second=np.zeros_like(mesh.weights),
        )
        self.epoch, self.l2 = 0, settings.fixed_l2
        self.edited = ""  # the method that goes on since the graph has changed
        self.factor = 1.0  # what divergence has left of the rate
        self.retries = 0
        self._now = self._snapshot()  # after the last row
        first, _ = mesh.program().evaluate(mesh.values, samples.X, samples.targets, settings.n_threads)
        self._safe, self._safe_loss = self._now, first + self.optimizer.penalty(mesh.weights)  # where it was lowest
        # A small net takes as long to come back to Python as for several epochs of a full batch.
        block = int(BLOCK / (samples.count * program.work + EPOCH))
        self.every = max(1, min(settings.max_epochs // ROWS, block)) if self.steps.batches == 1 else 1

    def rewire(self, change: Change) -> None:
        """Go on after the graph has changed: edges that stayed keep what is known about their gradient."""
        held = self.optimizer
        held.first, held.second = (carried(change.edges, moment) for moment in (held.first, held.second))
        held.penalised = penalised_edges(self.mesh).astype(self.mesh.dtype)
        self._recompile(self.steps.program.plan.method.name)
        self._safe = self._now = self._snapshot()

    def _recompile(self, method: str) -> None:
        self.edited = method
        self.steps.rewire(self.mesh.program("epochs", method, again=True))

    def _rates(self, epochs: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        total = self.settings.max_epochs * self.steps.batches
        begin = self.epoch * self.steps.batches
        done = range(begin, begin + epochs * self.steps.batches)
        rate = self.settings.learning_rate * self.factor
        return np.array([rate * self.settings.share_of_rate(step / total) for step in done])

    def _order(self, epochs: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        if self.steps.batches == 1:
            return np.empty((epochs, 0), np.int64)
        return np.stack([self.rng.permutation(self.steps.n) for _ in range(epochs)])

    def advance(self, most: int) -> Progress:
        """Run a row's worth of epochs; a loss that is not finite takes it back and halves the rate."""
        epochs = min(self.every - self.epoch % self.every, most)
        before = self._now
        rates = self._rates(epochs)
        record = self.steps.epochs(self.mesh.values, self.optimizer, self._order(epochs), rates)
        loss = float(record[-1, 0]) + self.optimizer.penalty(self.mesh.weights)
        if not (loss < ASTRAY * (1.0 + self._safe_loss) and np.isfinite(self.mesh.weights).all()):
            return self._take_back(float(record[-1, 0]))
        self.epoch += epochs
        self._now = self._snapshot()
        if loss <= self._safe_loss:
            # Not where the loss was last finite: a run that diverges has gone astray long before it overflows. The
            # loss of mini-batches is that of earlier weights; those they led to are not known to be any good yet.
            self._safe, self._safe_loss = self._now if self.steps.batches == 1 else before, loss
        return Progress(loss, float(record[-1, 1]), float(record[-1, 2]), float(rates[-1]))

    def _take_back(self, loss: float) -> Progress:
        self._return_to(self._safe)
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

    def _snapshot(self) -> State:
        """Weights, moments, epoch and the random stream: what a step changes."""
        values = {"epoch": self.epoch, "done": self.optimizer.done, "random": self.rng.bit_generator.state}
        held = {"weights": self.mesh.weights, "first": self.optimizer.first, "second": self.optimizer.second}
        return State(values, {name: array.copy() for name, array in held.items()})

    def _return_to(self, snapshot: State) -> None:
        values, arrays = snapshot
        self.epoch, self.optimizer.done = values["epoch"], values["done"]
        self.rng.bit_generator.state = values["random"]
        self.mesh.weights[:] = arrays["weights"]
        self.optimizer.first[:] = arrays["first"]
        self.optimizer.second[:] = arrays["second"]

    def memory(self) -> State:
        """What `take_over` needs: what is known about the gradient, the random stream, and what is left of the rate."""
        values = {"factor": self.factor, "done": self.optimizer.done, "random": self.rng.bit_generator.state}
        return State(values, {"first": self.optimizer.first.copy(), "second": self.optimizer.second.copy()})

    def take_over(self, memory: State) -> None:
        """Remember what an earlier stream of samples taught about the gradient, and go on with its random stream."""
        values, arrays = check_memory(memory, self.mesh)
        self.factor, self.optimizer.done = values["factor"], values["done"]
        self.rng.bit_generator.state = values["random"]
        self.optimizer.first[:] = arrays["first"]
        self.optimizer.second[:] = arrays["second"]
        self._safe = self._now = self._snapshot()

    def state(self) -> State:
        """Where it stands, where it was last safe, and the rate."""
        now, safe = self._now, self._safe
        values = {"now": now.values, "safe": safe.values, "factor": self.factor, "retries": self.retries}
        values["safe_loss"] = encode(self._safe_loss)
        values["edited"] = self.edited
        arrays = now.arrays | {f"safe_{name}": array for name, array in safe.arrays.items()}
        return State(values, arrays)

    def restore(self, state: State) -> None:
        """Go on from there."""
        values, arrays = state
        if values["edited"]:  # another start would choose anew, and round otherwise
            self._recompile(known("method", values["edited"], METHODS))
        most = self.settings.max_epochs
        self.factor = _share(values["factor"])
        self.retries = whole_number("retries", values["retries"], least=0, most=RETRIES)
        self._safe_loss = decode("safe_loss", values["safe_loss"], least=0.0)
        now, safe = (
            State(_checked(values[when], most), {name: _like(self.mesh, arrays[f"{prefix}{name}"]) for name in _HELD})
            for when, prefix in (("now", ""), ("safe", "safe_"))
        )
        self._return_to(now)
        self._now, self._safe = now, safe


_HELD = ("weights", "first", "second")


def check_memory(memory: State, mesh: Mesh) -> State:
    """What a stream remembers, if it can be that of such a mesh: it may come from a file."""
    values, arrays = memory
    checked = _checked(values | {"epoch": 0}, 0) | {"factor": _share(values["factor"])}
    return State(checked, {name: _like(mesh, arrays[name]) for name in ("first", "second")})


def _checked(values: dict[str, Any], most: int) -> dict[str, Any]:
    """Epoch, steps and random stream of a snapshot."""
    try:
        np.random.PCG64(0).state = values["random"]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise MeshError("the stored state of the random stream makes no sense") from None
    epoch = whole_number("epoch", values["epoch"], least=0, most=most)
    done = whole_number("done", values["done"], least=0, most=2**53)
    return {"epoch": epoch, "done": done, "random": values["random"]}


def _share(factor: Any) -> float:
    return real_number("factor", factor, "a number above 0 and up to 1", lambda v: 0 < v <= 1)


def _like(mesh: Mesh, array: Any) -> Any:
    """One number an edge, in the precision of the mesh."""
    if array.shape != (mesh.topology.n_edges,) or array.dtype.kind != "f":
        raise MeshError(f"the stored state has {array.dtype} {array.shape} for {mesh.topology.n_edges} edges")
    return array.astype(mesh.dtype)
