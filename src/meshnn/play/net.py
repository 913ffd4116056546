"""`PlayNet`: a net, its samples and its solver; it is trained in short slices, edited, and edits are undone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.play.data import PlayData, drift
from meshnn.play.edits import Sketch, become, names_of
from meshnn.play.learners import LearnResult, new_learner
from meshnn.play.limits import LIMITS
from meshnn.play.link import LinkState
from meshnn.streaming.growth import Growth
from meshnn.topology import Topology
from meshnn.topology.lineage import Lineage
from meshnn.training.api import as_samples
from meshnn.training.samples import InMemorySamples
from meshnn.training.solvers import Change
from meshnn.training.structure.choosing import importance, sample_of, weakest
from meshnn.training.structure.graph import Allowed, View

__all__ = ["GRAPHS", "PlayNet", "UndoStep"]

GRAPHS = ("mesh", "layered", "cascade", "columns", "none")


class UndoStep(NamedTuple):
    """What undo goes back to."""

    sketch: Sketch
    ticks: int
    whole: bool  # all weights are restored, not only those of edges that come back


class PlayNet:
    """A net that is trained, edited and watched."""

    def __init__(self, data: PlayData) -> None:
        self.data = data
        self.solver, self.rate, self.budget = "adam", 0.01, 1000
        self.undone: list[UndoStep] = []
        self.redone: list[UndoStep] = []
        self.version = 0  # of the graph
        self.moved = True  # whether weights have changed since the last picture
        self.begin(self.new_graph("mesh", data.hidden))

    def new_graph(self, kind: str, hidden: int) -> Topology:
        """Return a graph that fits the samples."""
        sizes = len(self.data.features), hidden, self.data.n_outputs
        if kind == "none" or hidden == 0:
            return Topology.layered([sizes[0], sizes[2]])
        if kind == "mesh":
            whole = Topology.mesh(*sizes)
            if whole.n_edges <= 400:
                return whole
            allowed = Topology.mesh(*sizes, feedback=False).n_edges - hidden - sizes[2]
            share = min((1000 - hidden - sizes[2]) / allowed, 1.0)  # more edges cannot be told apart on the page
            return Topology.mesh(*sizes, density=max(share, 0.05), feedback=False, random_state=self.data.seed)
        if kind == "layered":
            return Topology.layered(sizes)
        return Topology.cascade(*sizes) if kind == "cascade" else Topology.columns(*sizes)

    # -- another net, other samples ------------------------------------------------------------------------------

    def begin(self, topology: Topology) -> None:
        """Start with a new net with random weights."""
        ticks = max(3, topology.default_ticks()) if topology.n_hidden else 1
        mesh = Mesh(topology, min(ticks, LIMITS.ticks), "tanh", dtype="float64", random_state=self.data.seed)
        hidden = [f"h{k}" for k in range(topology.n_hidden)]
        names = names_of(topology.n_inputs, topology.bias, hidden, topology.n_outputs)
        self.budget = max(self.budget, topology.n_edges)
        self.adopt(mesh, names, self.data)

    def adopt(self, mesh: Mesh, names: list[str], data: PlayData, done: int = 0) -> None:
        """Go on with this mesh on these samples; nothing changes if the solver refuses them."""
        self.learner = new_learner(mesh, data, self.solver, self.rate, done)
        self.mesh, self.names, self.data = mesh, names, data
        self.rng = np.random.default_rng([data.seed, 1])
        self.samples = as_samples(mesh, data.X, data.y, data.loss)
        if getattr(self, "sample", None) is None or self.sample.shape[1] != len(data.features):
            self.sample: NDArray[Any] = data.X[:1]  # whose states are shown
        self.undone, self.redone = [], []
        self._start_counting()

    def take(self, data: PlayData) -> None:
        """Go on with other samples; the net stays if it fits them."""
        before = self.data
        alike = (len(data.features), data.n_outputs, data.hidden, data.task) == (
            len(before.features), before.n_outputs, before.hidden, before.task
        )  # fmt: skip
        with self._all_or_nothing():
            self.data, self.sample = data, data.X[:1]
            if data.streams and not self.solver.startswith("stream"):
                self.solver = "stream"
            elif before.streams and not data.streams:
                self.solver = "adam"
            if alike:
                self.adopt(self.mesh, self.names, data)
            else:
                if self.solver == "lm" and data.name == "digits":
                    self.solver = "adam"  # an iteration of lm would take seconds
                self.begin(self.new_graph("mesh", data.hidden))

    def restore(self, state: LinkState, data: PlayData) -> None:
        """Go on from what a link holds."""
        wanted, sizes = state.sketch, (len(data.features), data.n_outputs)
        if (wanted.inputs, wanted.outputs) != sizes:
            raise MeshError(
                f"the link's net has {wanted.inputs} inputs and {wanted.outputs} outputs, but {data.title} has "
                f"{sizes[0]} features and {sizes[1]} outputs; copy the link again"
            )
        topology, order = wanted.graph()
        weights, kinds = np.array(list(wanted.edges.values()))[order], list(wanted.hidden.values()) or "tanh"
        mesh = Mesh(topology, state.ticks, kinds, weights=weights, dtype="float64")
        with self._all_or_nothing():
            self.solver, self.rate, self.budget = state.solver, state.rate, state.budget
            self.adopt(mesh, wanted.names, data, state.done)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore all attributes if the block raises a `MeshError`."""
        kept = dict(self.__dict__)
        try:
            yield
        except MeshError:
            self.__dict__.update(kept)
            raise

    def redraw(self, seed: int) -> None:
        """Draw new weights."""
        before = self.step_back(whole=True)
        self.mesh.weights = self.mesh.draw_weights(np.random.default_rng([self.data.seed, seed, 2]))
        self._remember(before)
        self.learner = new_learner(self.mesh, self.data, self.solver, self.rate)
        self._start_counting()

    def replace(self, topology: Topology) -> None:
        """Start with another graph, which can be undone."""
        steps = [*self.undone, self.step_back(whole=True)]
        self.begin(topology)
        self.undone = steps[-LIMITS.undo :]

    def set_solver(self, solver: str) -> None:
        """Go on with another solver."""
        self.learner = new_learner(self.mesh, self.data, solver, self.rate)
        self.solver = solver

    def _start_counting(self) -> None:
        self.result, self.moved = LearnResult(math.nan, math.nan), True
        self.measure()
        self.version += 1

    def measure(self) -> None:
        """Evaluate the net as it is on the samples; a stream has none to evaluate it on."""
        if not self.data.streams:
            loss, correct = self.samples.evaluate(self.mesh, 1)
            accuracy = self.samples.accuracy(correct) if self.data.task == "classify" else math.nan
            self.result = LearnResult(loss, accuracy)

    # -- edits ---------------------------------------------------------------------------------------------------

    def sketch(self) -> Sketch:
        """Return the graph by names."""
        return Sketch.of(self.mesh, self.names)

    def step_back(self, whole: bool = False) -> UndoStep:
        """Return what undo would go back to."""
        return UndoStep(self.sketch(), self.mesh.ticks, whole)

    def edit(self, wanted: Sketch, ticks: int | None = None) -> None:
        """Change the graph, or the ticks, while it learns."""
        before = self.step_back()
        self._become(wanted, self.mesh.ticks if ticks is None else ticks)
        self._remember(before)

    def _remember(self, before: UndoStep) -> None:
        self.undone, self.redone = [*self.undone[1 - LIMITS.undo :], before], []

    def undo(self, redo: bool = False) -> None:
        """Take the last edit back, or the last undo."""
        steps, others = (self.redone, self.undone) if redo else (self.undone, self.redone)
        if not steps:
            raise MeshError(f"there is nothing to {'redo' if redo else 'undo'}")
        step = steps[-1]
        before = self.step_back(step.whole)
        self._become(*step)
        steps.pop()
        others.append(before)

    def _become(self, wanted: Sketch, ticks: int, whole: bool = False) -> None:
        """Change mesh and solver; if one of them refuses, restore both."""
        now, before, names = self.sketch(), self.mesh.ticks, self.names
        try:
            self.mesh.ticks = max(ticks, before)  # with which both graphs reach their outputs
            self.names, growth, change = become(self.mesh, names, wanted, whole)
            self.mesh.ticks = ticks
            self._rewire(growth, change)
        except MeshError:  # the solver has not changed: it only has to take up the arrays of the mesh again
            self.mesh.ticks = max(ticks, before)
            self.names = become(self.mesh, self.names, now, whole=True)[0]
            self.mesh.ticks = before
            t, edges = self.mesh.topology, np.arange(self.mesh.topology.n_edges)
            self._rewire(Growth(t, np.arange(t.n_neurons), edges), Change(edges, np.arange(t.n_hidden), edges))
            raise

    def _rewire(self, growth: Growth, change: Change) -> None:
        self.learner.rewire(growth, change)
        self.version, self.moved = self.version + 1, True

    def check_budget(self, more: int) -> None:
        """Refuse edges beyond the budget."""
        count = self.mesh.topology.n_edges + more
        if count > self.budget:
            raise MeshError(f"{count:,} edges are more than the budget of {self.budget:,}; raise it, or prune")

    def grow(self) -> str:
        """Add the absent edges with the largest gradients, a tenth of those there are, within the budget."""
        count = self.mesh.topology.n_edges
        room = min(max(round(LIMITS.share * count), 1), self.budget - count)
        if room < 1:
            raise MeshError(f"the budget of {self.budget:,} edges is used up; raise it, or prune first")
        src, dst, scores = self.absent()
        best = np.argsort(-np.abs(scores), kind="stable")[:room]
        best = best[scores[best] != 0]
        if not len(best):
            raise MeshError("no absent edge has a gradient now: none would change the loss")
        self.edit(self.sketch().with_edges({(self.names[src[k]], self.names[dst[k]]): 0.0 for k in best.tolist()}))
        return f"{len(best)} edges added, those with the largest gradients"

    def prune(self) -> str:
        """Remove the least important edges, dead ones first: a tenth, or all that are above the budget."""
        mesh, names, t = self.mesh, self.names, self.mesh.topology
        goal = max(round(LIMITS.share * t.n_edges), t.n_edges - self.budget, 1)
        samples = self._recent()
        view = View(mesh, samples, self.rng, Allowed(t), Lineage(t), True, 0, 1)
        gone = weakest(view, importance("saliency", mesh, samples, self.rng), goal, bias=False)
        if not gone.any():
            raise MeshError("no edge can be removed: each is on the last path to an output, or of the bias")
        pairs = {(names[s], names[d]) for s, d in zip(t.src[gone].tolist(), t.dst[gone].tolist(), strict=True)}
        self.edit(self.sketch().without_edges(pairs))
        rest = "; the others are on the last path to an output, or of the bias" if len(pairs) < goal else ""
        return f"{len(pairs)} edges pruned, the least important ones{rest}"

    def _recent(self) -> InMemorySamples:
        """Return the samples; of a stream the last ones."""
        if not self.data.streams:
            return self.samples
        X, y = drift(500, max(self.learner.done - 500, 0), self.data.seed)
        return as_samples(self.mesh, self.data.scaling.inputs(X), y, self.data.loss)

    def absent(self, src: int | None = None, dst: int | None = None) -> tuple[Any, Any, Any]:
        """Return sources and destinations of absent edges, and the gradient that each would have with weight 0."""
        t = self.mesh.topology
        there = np.zeros((t.n_neurons, t.n_neurons), np.bool_)
        there[t.src, t.dst] = True
        there[:, : t.n_clamped] = True  # these would be dead
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
