"""`PlayNet`: a net with its samples and solver, which is trained in short slices and can be edited."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.play.data import PlayData, drift
from meshnn.play.edits import Sketch, become, names_of
from meshnn.play.learners import LearnResult, check_work, new_learner
from meshnn.play.limits import LIMITS
from meshnn.play.link import LinkState
from meshnn.topology import Topology
from meshnn.topology.lineage import Lineage
from meshnn.training.api import as_samples
from meshnn.training.samples import InMemorySamples
from meshnn.training.structure.choosing import importance, sample_of, weakest
from meshnn.training.structure.graph import Allowed, View

__all__ = ["GRAPHS", "PlayNet", "UndoStep"]

GRAPHS = ("mesh", "layered", "cascade", "columns", "none")


class UndoStep(NamedTuple):
    """A state that undo restores."""

    sketch: Sketch
    ticks: int
    whole: bool  # restore all weights, not only those of edges that come back


class PlayNet:
    """A net that is trained, edited and shown. Incompatible samples or another kind of graph make a new one."""

    _versions = itertools.count()

    def __init__(
        self, data: PlayData, mesh: Mesh, names: list[str] | None = None, *, solver: str = "adam", rate: float = 0.01,
        budget: int = 1000, done: int = 0,
    ) -> None:  # fmt: skip
        t = mesh.topology
        hidden = [f"h{k}" for k in range(t.n_hidden)]
        self.data, self.mesh = data, mesh
        self.names = names or names_of(t.n_inputs, t.bias, hidden, t.n_outputs)
        self.solver, self.rate, self.budget = solver, rate, budget
        self.learner = new_learner(mesh, data, solver, rate, done)
        self.samples = as_samples(mesh, data.X, data.y, data.loss)
        self.sample: NDArray[Any] = data.X[:1]  # the sample whose states are shown
        self.rng = np.random.default_rng([data.seed, 1])
        self.undone: list[UndoStep] = []
        self.redone: list[UndoStep] = []
        self._start_counting()

    @classmethod
    def new(
        cls, data: PlayData, kind: str = "mesh", hidden: int | None = None, *, budget: int = 1000, **settings: Any
    ) -> PlayNet:
        """Return a net with random weights that fits the samples."""
        topology = _new_graph(data, kind, data.hidden if hidden is None else hidden)
        ticks = max(3, topology.default_ticks()) if topology.n_hidden else 1
        mesh = Mesh(topology, min(ticks, LIMITS.ticks), "tanh", dtype="float64", random_state=data.seed)
        return cls(data, mesh, budget=max(budget, topology.n_edges), **settings)

    @classmethod
    def restored(cls, state: LinkState, data: PlayData) -> PlayNet:
        """Return the net in a link."""
        wanted, sizes = state.sketch, (len(data.features), data.n_outputs)
        if (wanted.inputs, wanted.outputs) != sizes:
            raise MeshError(
                f"the link's net has {wanted.inputs} inputs and {wanted.outputs} outputs, but {data.title} has "
                f"{sizes[0]} features and {sizes[1]} outputs; copy the link again"
            )
        settings: Any = {name: getattr(state, name) for name in ("solver", "rate", "budget", "done")}
        return cls(data, wanted.mesh(state.ticks), wanted.names, **settings)

    def on(self, data: PlayData) -> PlayNet:
        """Return the net with other samples; a new net if their sizes differ."""
        before, solver = self.data, self.solver
        if data.streams and not solver.startswith("stream"):
            solver = "stream"
        elif before.streams and not data.streams:
            solver = "adam"
        settings: Any = {"rate": self.rate, "budget": self.budget}
        if all(getattr(data, name) == getattr(before, name) for name in ("n_features", "n_outputs", "hidden", "task")):
            return PlayNet(data, self.mesh, self.names, solver=solver, **settings)
        if solver == "lm" and data.name == "digits":
            solver = "adam"  # an iteration of lm would take seconds
        return PlayNet.new(data, solver=solver, **settings)

    def replaced(self, kind: str, hidden: int) -> PlayNet:
        """Return a net with another kind of graph; undo returns to the current net."""
        made = PlayNet.new(self.data, kind, hidden, solver=self.solver, rate=self.rate, budget=self.budget)
        made.undone, made.sample = [*self.undone, self.step_back(whole=True)][-LIMITS.undo :], self.sample
        return made

    def redraw(self, seed: int) -> None:
        """Draw new weights."""
        before = self.step_back(whole=True)
        self.mesh.weights = self.mesh.draw_weights(np.random.default_rng([self.data.seed, seed, 2]))
        self._remember(before)
        self.learner = new_learner(self.mesh, self.data, self.solver, self.rate)
        self._start_counting()

    def set_solver(self, solver: str) -> None:
        """Continue with another solver."""
        self.learner = new_learner(self.mesh, self.data, solver, self.rate)
        self.solver = solver

    def _start_counting(self) -> None:
        self.result, self.moved = LearnResult(math.nan, math.nan), True
        self.measure()
        self.version = next(self._versions)

    def measure(self) -> None:
        """Evaluate the net on the samples, if it is not on a stream."""
        if not self.data.streams:
            loss, correct = self.samples.evaluate(self.mesh, 1)
            accuracy = self.samples.accuracy(correct) if self.data.task == "classify" else math.nan
            self.result = LearnResult(loss, accuracy)

    # -- edits ---------------------------------------------------------------------------------------------------

    def sketch(self) -> Sketch:
        """Return the graph by names."""
        return Sketch.of(self.mesh, self.names)

    def step_back(self, whole: bool = False) -> UndoStep:
        """Return the current state for undo."""
        return UndoStep(self.sketch(), self.mesh.ticks, whole)

    def edit(self, wanted: Sketch, ticks: int | None = None) -> None:
        """Change the graph or the ticks during training; edges above the budget raise an error."""
        count, before = len(wanted.edges), self.step_back()
        if count > max(self.budget, self.mesh.topology.n_edges):
            raise MeshError(f"{count:,} edges are more than the budget of {self.budget:,}; raise it, or prune")
        self._become(wanted, self.mesh.ticks if ticks is None else ticks)
        self._remember(before)

    def _remember(self, before: UndoStep) -> None:
        self.undone, self.redone = [*self.undone[1 - LIMITS.undo :], before], []

    def undo(self, redo: bool = False) -> None:
        """Undo the last edit, or redo the last undone one."""
        steps, others = (self.redone, self.undone) if redo else (self.undone, self.redone)
        if not steps:
            raise MeshError(f"there is nothing to {'redo' if redo else 'undo'}")
        step = steps[-1]
        before = self.step_back(step.whole)
        self._become(*step)
        steps.pop()
        others.append(before)

    def _become(self, wanted: Sketch, ticks: int, whole: bool = False) -> None:
        """Change mesh and solver; if one of them raises an error, nothing changes."""
        mesh, names = wanted.mesh(ticks), wanted.names
        check_work(mesh, self.data, self.solver)
        self.learner.rewire(*become(self.mesh, self.names, mesh, names, whole))
        self.names, self.version, self.moved = names, next(self._versions), True

    def grow(self) -> str:
        """Add the absent edges with the largest gradients, within the budget: a tenth of the number of edges."""
        count = self.mesh.topology.n_edges
        room = min(max(round(LIMITS.share * count), 1), self.budget - count)
        if room < 1:
            raise MeshError(f"the budget of {self.budget:,} edges is used up; raise it, or prune first")
        src, dst, scores = self.absent()
        best = np.argsort(-np.abs(scores), kind="stable")[:room]
        best = best[scores[best] != 0]
        if not len(best):
            raise MeshError("no absent edge has a gradient: none would change the loss")
        self.edit(self.sketch().with_edges({(self.names[src[k]], self.names[dst[k]]): 0.0 for k in best.tolist()}))
        return f"{len(best)} edges added, those with the largest gradients"

    def prune(self) -> str:
        """Remove the least important edges, dead ones first: a tenth, or all above the budget."""
        mesh, names, t = self.mesh, self.names, self.mesh.topology
        goal = max(round(LIMITS.share * t.n_edges), t.n_edges - self.budget, 1)
        samples = self._recent()
        view = View(mesh, samples, self.rng, Allowed(t), Lineage(t), True, 0, 1)
        gone = weakest(view, importance("saliency", mesh, samples, self.rng), goal, bias=False)
        if not gone.any():
            raise MeshError("no edge can be removed: each is on the last path to an output, or comes from the bias")
        pairs = {(names[s], names[d]) for s, d in zip(t.src[gone].tolist(), t.dst[gone].tolist(), strict=True)}
        self.edit(self.sketch().without_edges(pairs))
        rest = "; the others are on the last path to an output, or come from the bias" if len(pairs) < goal else ""
        return f"{len(pairs)} edges pruned, the least important ones{rest}"

    def _recent(self) -> InMemorySamples:
        """Return the samples; for a stream, the last ones."""
        if not self.data.streams:
            return self.samples
        X, y = drift(500, max(self.learner.done - 500, 0), self.data.seed)
        return as_samples(self.mesh, self.data.scaling.inputs(X), y, self.data.loss)

    def absent(self, src: int | None = None, dst: int | None = None) -> tuple[Any, Any, Any]:
        """Return sources and destinations of absent edges, and the gradient of each at weight 0."""
        t = self.mesh.topology
        there = np.zeros((t.n_neurons, t.n_neurons), np.bool_)
        there[t.src, t.dst] = True
        there[:, : t.n_clamped] = True  # edges into these neurons would be dead
        if src is not None:
            there[np.arange(t.n_neurons) != src] = True
        if dst is not None:
            there[:, np.arange(t.n_neurons) != dst] = True
        pairs = np.argwhere(~there)
        if not len(pairs):
            return pairs[:, 0], pairs[:, 1], np.empty(0)
        some = sample_of(self._recent(), np.random.default_rng(0), LIMITS.scored)
        scores = self.mesh.growth_scores(
            some.inputs, some.targets, src=pairs[:, 0], dst=pairs[:, 1], gradient="adjoint", n_jobs=1
        )
        return pairs[:, 0], pairs[:, 1], scores


def _new_graph(data: PlayData, kind: str, hidden: int) -> Topology:
    """Return a graph that fits the samples."""
    sizes = len(data.features), hidden, data.n_outputs
    if kind == "none" or hidden == 0:
        return Topology.layered([sizes[0], sizes[2]])
    if kind == "mesh":
        whole = Topology.mesh(*sizes)
        if whole.n_edges <= 400:
            return whole
        allowed = Topology.mesh(*sizes, feedback=False).n_edges - hidden - sizes[2]
        share = min((1000 - hidden - sizes[2]) / allowed, 1.0)  # the page cannot show more edges distinctly
        return Topology.mesh(*sizes, density=max(share, 0.05), feedback=False, random_state=data.seed)
    if kind == "layered":
        return Topology.layered(sizes)
    return Topology.cascade(*sizes) if kind == "cascade" else Topology.columns(*sizes)
