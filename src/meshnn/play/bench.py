"""`PlaySession`: a net, samples and a solver, which take orders from a page between two short slices of learning."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arguments import known, switch, whole_number
from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.play import edits
from meshnn.play.data import SETS, PlayData, Table, as_number, built_in, drift
from meshnn.play.frames import Message, packed, said
from meshnn.play.learners import SOLVERS, Learner, Told, new_learner
from meshnn.play.outputs import exported, python_of
from meshnn.play.state import PACES, State, checked, known_pace
from meshnn.streaming.growth import Growth
from meshnn.topology import Topology
from meshnn.topology.lineage import Lineage
from meshnn.training.api import as_samples
from meshnn.training.samples import InMemorySamples
from meshnn.training.solvers import Change
from meshnn.training.structure.choosing import importance, sample_of, weakest
from meshnn.training.structure.graph import Allowed
from meshnn.training.structure.view import View

__all__ = ["GRAPHS", "PlaySession"]

#: Seconds that learning goes on before orders are taken again, between two frames, and between two pictures of regions.
SLICE, FRAME, PICTURE = 0.015, 1 / 30, 0.2
#: Frames that may be under way before the page has said that it has them.
UNDER_WAY = 2
#: Points of a grid of decision regions along a side, and points of a picture of predictions.
GRID, SHOWN = 96, 400
#: Edits that can be undone, absent edges that are shown with their scores, and samples that scores are means of.
MOST_UNDO, CANDIDATES, SCORED = 200, 40, 256
#: Epochs, or samples, of a slice.
MOST_UNITS = 5000
#: Share of the edges that one press of grow or prune adds or takes out.
SHARE = 0.1
GRAPHS = ("mesh", "layered", "cascade", "columns", "none")
#: Learning rate and pace to begin with.
RATE, PACE, STREAM_PACE = 0.01, 100, 1000


class PlaySession:
    """One page's net. `receive` takes an order, `advance` learns for a moment; both return what the page is to know."""

    def __init__(self, path: Path | None = None, target: str = "") -> None:
        self.mesh: Mesh
        self.names: list[str]
        self.learner: Learner
        self.samples: InMemorySamples
        self.table: Table | None = None
        self.running, self.awaited = False, 0
        self.solver, self.rate, self.pace, self.budget = "adam", RATE, PACE, 1000
        self.told = Told(math.nan, math.nan)
        self.test = math.nan
        self.units, self.credit = 1, 0.0
        self.last_frame = self.last_picture = self.last_slice = 0.0
        self.dirty = True  # whether weights have moved since the last picture
        self.undone: list[tuple[edits.Drawing, int, bool]] = []
        self.redone: list[tuple[edits.Drawing, int, bool]] = []
        self.version = 0
        self.opening: list[Message] = []
        self.sample: NDArray[Any] | None = None
        self.data = built_in("moons", 0)
        if path is not None:
            try:
                self.table = Table.read(path)
                self.table.target = target
                self.data = self.table.chosen(0)
            except MeshError as error:
                self.opening.append(said("error", text=str(error)))
        self._begin(self._graph("mesh", self.data.hidden))
        self._orders: dict[str, Callable[[dict[str, Any]], Iterator[Message]]] = {
            "hello": self._hello, "ack": self._ack, "run": self._run, "step": self._step, "data": self._data,
            "csv": self._csv, "table": self._table, "set": self._set, "activation": self._activation,
            "edge": self._edge, "neuron": self._neuron, "grow": self._grow, "prune": self._prune, "undo": self._undo,
            "redo": self._redo, "reset": self._reset, "new": self._new, "scores": self._scores,
            "sample": self._sample, "export": self._export, "python": self._python, "restore": self._restore,
        }  # fmt: skip

    # -- orders --------------------------------------------------------------------------------------------------

    def receive(self, message: str) -> list[Message]:
        """Do what the page asks for. Whatever is wrong with it comes back as one sentence, and changes nothing."""
        try:
            order = json.loads(message)
        except (ValueError, RecursionError):
            return [said("error", text="the page sent something that is not JSON; reload it")]
        name = order.get("do") if isinstance(order, dict) else None
        if not isinstance(name, str) or name not in self._orders:
            return [said("error", text=f"there is no order {str(name)[:40]!r}; reload the page")]
        found: list[Message] = []  # also what is told before something is refused
        try:
            found.extend(self._orders[name](order))
        except MeshError as error:
            found.append(said("error", text=str(error), order=name))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            what = f"{type(error).__name__}: {error}"[:120]
            found.append(said("error", text=f"the order {name!r} makes no sense ({what}); reload the page", order=name))
        return found

    def _hello(self, order: dict[str, Any]) -> Iterator[Message]:
        yield said(
            "hello", sets={name: item.title for name, item in SETS.items()}, solvers=SOLVERS, graphs=GRAPHS,
            activations=list(ACTIVATIONS), paces=PACES, table=self._table_facts(),
        )  # fmt: skip
        yield from self._everything()
        yield from self.opening
        self.opening = []

    def _ack(self, order: dict[str, Any]) -> Iterator[Message]:
        self.awaited = max(self.awaited - 1, 0)
        yield from ()

    def _run(self, order: dict[str, Any]) -> Iterator[Message]:
        self.running = switch("on", order["on"])
        self.last_slice, self.credit = time.perf_counter(), 1.0
        yield self._settings()

    def _step(self, order: dict[str, Any]) -> Iterator[Message]:
        self.running = False
        yield from self._learn(1 if self.learner.unit == "epoch" else 10)
        yield self._settings()
        yield from self._frames()

    def _data(self, order: dict[str, Any]) -> Iterator[Message]:
        name, seed = order["name"], order.get("seed", 0)
        if name == "table":
            if self.table is None:
                raise MeshError("there is no table yet; choose a .csv file first")
            data = self.table.chosen(whole_number("seed", seed, least=0, most=2**32 - 1))
        else:
            data = built_in(name, seed)
        yield from self._take(data)

    def _csv(self, order: dict[str, Any]) -> Iterator[Message]:
        text, name = order["text"], order["name"]
        if not isinstance(text, str) or not isinstance(name, str):
            raise MeshError("a table is text with a name; choose a .csv file")
        table = Table.parse(name, text)
        self._choose(table, order)
        yield from self._chosen(table)

    def _table(self, order: dict[str, Any]) -> Iterator[Message]:
        if self.table is None:
            raise MeshError("there is no table yet; choose a .csv file first")
        held = self.table
        table = Table(held.name, held.text, held.table, held.notes)
        self._choose(table, order)
        yield from self._chosen(table)

    def _choose(self, table: Table, order: dict[str, Any]) -> None:
        target, drop = order.get("target", ""), order.get("drop", [])
        if not isinstance(target, str) or not isinstance(drop, list) or not all(isinstance(c, str) for c in drop):
            raise MeshError("target and drop are names of columns")
        table.target, table.drop, table.impute = target, drop, switch("impute", order.get("impute", False))

    def _chosen(self, table: Table) -> Iterator[Message]:
        """Learn from a table; one that cannot be learned from as it is stays, so that another target can be chosen."""
        self.table = table
        yield said("table", **self._table_facts())
        yield from self._take(table.chosen(self.data.seed))

    def _set(self, order: dict[str, Any]) -> Iterator[Message]:
        if "rate" in order:
            self.rate = as_number("rate", order["rate"], 1e-5, 10.0)
            self.learner.set_rate(self.rate)
        if "pace" in order:
            self.pace, self.credit = known_pace(order["pace"]), 0.0
        if "budget" in order:
            self.budget = whole_number("budget", order["budget"], most=edits.MOST_EDGES)
        if "solver" in order:
            solver = known("solver", order["solver"], SOLVERS)
            self.learner = new_learner(self.mesh, self.data, solver, self.rate)
            self.solver, self.units = solver, 1
        if "ticks" in order:
            ticks = whole_number("ticks", order["ticks"], most=edits.MOST_TICKS)
            before = (self._drawing(), self.mesh.ticks, False)
            self._become(before[0], ticks)
            self._remember(before)
            yield self._graph_message()
        if not self.running and not order.keys().isdisjoint(("solver", "ticks")):
            self._measure()
        yield self._settings()
        yield from self._frames()

    def _activation(self, order: dict[str, Any]) -> Iterator[Message]:
        kind, name = known("activation", order["name"], ACTIVATIONS), str(order["id"])
        yield from self._edited(edits.with_activation(self._drawing(), name, kind))

    def _edge(self, order: dict[str, Any]) -> Iterator[Message]:
        src, dst, now = str(order["src"]), str(order["dst"]), self._drawing()
        if not switch("add", order["add"]):
            yield from self._edited(edits.without_edge(now, src, dst))
            return
        self._check_budget(1)
        yield from self._edited(edits.with_edge(now, src, dst, self.rng))

    def _neuron(self, order: dict[str, Any]) -> Iterator[Message]:
        now = self._drawing()
        if not switch("add", order["add"]):
            yield from self._edited(edits.without_neuron(now, str(order["id"])))
            return
        bare = switch("bare", order.get("bare", False))
        kind = next(iter(now.hidden.values()), "tanh")
        wanted, name = edits.with_neuron(now, bare, kind, self.rng)
        self._check_budget(len(wanted.edges) - len(now.edges))
        yield from self._edited(wanted)
        yield said("born", id=name)

    def _check_budget(self, more: int) -> None:
        count = self.mesh.topology.n_edges
        if count + more > self.budget:
            raise MeshError(f"{count + more:,} edges are more than the budget of {self.budget:,}; raise it, or prune")

    def _grow(self, order: dict[str, Any]) -> Iterator[Message]:
        """Add the absent edges with the largest gradients, a tenth of those there are, within the budget."""
        count = self.mesh.topology.n_edges
        room = min(max(round(SHARE * count), 1), self.budget - count)
        if room < 1:
            raise MeshError(f"the budget of {self.budget:,} edges is used up; raise it, or prune first")
        src, dst, scores = self._absent()
        best = np.argsort(-np.abs(scores), kind="stable")[:room]
        best = best[scores[best] != 0]
        if not len(best):
            raise MeshError("no absent edge has a gradient now: there is nothing to be gained by one")
        now, names = self._drawing(), self.names
        new = {(names[src[k]], names[dst[k]]): 0.0 for k in best.tolist()}
        yield from self._edited(edits.Drawing(now.inputs, now.outputs, now.bias, now.hidden, now.edges | new))
        yield said("said", text=f"{len(new)} edges grown, those with the largest gradients")

    def _prune(self, order: dict[str, Any]) -> Iterator[Message]:
        """Take out the edges that matter least, dead ones first: a tenth, or all that are above the budget."""
        mesh = self.mesh
        count = mesh.topology.n_edges
        goal = max(round(SHARE * count), count - self.budget, 1)
        samples = self._recent()
        view = View(mesh, samples, self.rng, Allowed(mesh.topology), Lineage(mesh.topology), True, 0, 1)
        gone = weakest(view, importance("saliency", mesh, samples, self.rng), goal, bias=False)
        if not gone.any():
            raise MeshError("no edge can go: each is on the last way from an input to an output, or of the bias")
        now, names, t = self._drawing(), self.names, mesh.topology
        pairs = {(names[s], names[d]) for s, d in zip(t.src[gone].tolist(), t.dst[gone].tolist(), strict=True)}
        kept = {pair: weight for pair, weight in now.edges.items() if pair not in pairs}
        yield from self._edited(edits.Drawing(now.inputs, now.outputs, now.bias, now.hidden, kept))
        rest = "; the others are on the last way to an output, or of the bias" if len(pairs) < goal else ""
        yield said("said", text=f"{len(pairs)} edges pruned, those that matter least{rest}")

    def _undo(self, order: dict[str, Any]) -> Iterator[Message]:
        yield from self._back(self.undone, self.redone, "undo")

    def _redo(self, order: dict[str, Any]) -> Iterator[Message]:
        yield from self._back(self.redone, self.undone, "redo")

    def _back(self, stack: list[Any], other: list[Any], word: str) -> Iterator[Message]:
        if not stack:
            raise MeshError(f"there is nothing to {word}")
        drawing, ticks, whole = stack[-1]
        before = (self._drawing(), self.mesh.ticks, whole)
        self._become(drawing, ticks, whole)
        stack.pop()
        other.append(before)
        yield from self._changed()
        yield self._settings()

    def _reset(self, order: dict[str, Any]) -> Iterator[Message]:
        before = (self._drawing(), self.mesh.ticks, True)
        seed = whole_number("seed", order.get("seed", 0), least=0, most=2**32 - 1)
        self.mesh.weights = self.mesh.draw_weights(np.random.default_rng([self.data.seed, seed, 2]))
        self._remember(before)
        self._restart()
        yield from self._changed()

    def _new(self, order: dict[str, Any]) -> Iterator[Message]:
        kind = known("graph", order["graph"], GRAPHS)
        hidden = whole_number("hidden", order.get("hidden", self.data.hidden), least=0, most=100)
        before = [*self.undone, (self._drawing(), self.mesh.ticks, True)]
        self._begin(self._graph(kind, hidden))
        self.undone = before[-MOST_UNDO:]
        yield from self._changed()
        yield self._settings()

    def _sample(self, order: dict[str, Any]) -> Iterator[Message]:
        if "index" in order:
            at = whole_number("row", order["index"], least=0, most=len(self.data.raw) - 1)
            raw = self.data.raw[at]
        else:
            raw = np.array([as_number("point", v, -1e9, 1e9) for v in order["point"]])
            if len(raw) != len(self.data.features):
                raise MeshError(f"a point has {len(self.data.features)} numbers here, got {len(raw)}")
        self.sample = self.data.scaling.inputs(raw[None])
        yield from self._frames()

    def _scores(self, order: dict[str, Any]) -> Iterator[Message]:
        """The gradient that absent edges would have: of one, of all that leave a neuron, or the largest of all."""
        names = {name: k for k, name in enumerate(self.names)}
        only = names.get(str(order["src"]), -1) if "src" in order else None
        to = names.get(str(order["dst"]), -1) if "dst" in order else None
        if only == -1 or to == -1:
            raise MeshError("that neuron is not there any more")
        src, dst, scores = self._absent(only, to)
        best = np.argsort(-np.abs(scores), kind="stable")
        best = best if only is not None else best[:CANDIDATES]
        found = [[self.names[src[k]], self.names[dst[k]], float(scores[k])] for k in best.tolist()]
        yield said("scores", edges=found, src=order.get("src"), dst=order.get("dst"), version=self.version)

    def _export(self, order: dict[str, Any]) -> Iterator[Message]:
        name, content = exported(str(order["what"]), self.mesh, self.data, self.learner.done, self.solver)
        yield packed("file", {"content": np.frombuffer(content, np.uint8)}, name=name)

    def _python(self, order: dict[str, Any]) -> Iterator[Message]:
        yield said("python", text=python_of(self.mesh, self.data, self.solver, self.rate, self.learner.done))

    def _restore(self, order: dict[str, Any]) -> Iterator[Message]:
        state = checked(order["state"])
        table = None
        if state.name == "table":
            if state.table["text"]:
                table = Table.parse(state.table["name"], state.table["text"])
            elif self.table is not None and self.table.name == state.table["name"]:
                table = Table(self.table.name, self.table.text, self.table.table, self.table.notes)
            else:
                raise MeshError(f"this link needs the table {state.table['name'][:80]}, which is too large for it: "
                                "load that first, then open the link again")  # fmt: skip
            table.target, table.impute, table.drop = (state.table[k] for k in ("target", "impute", "drop"))
            data = table.chosen(state.seed)
        else:
            data = built_in(state.name, state.seed)
        mesh = self._restored(state, data)
        self.learner = new_learner(mesh, data, state.solver, state.rate, state.done)
        self.table = table or self.table
        self.data, self.mesh, self.names = data, mesh, state.drawing.names
        self.solver, self.rate, self.budget, self.pace = state.solver, state.rate, state.budget, state.pace
        self._settled()
        if table is not None:
            yield said("table", **self._table_facts())
        yield from self._everything()

    def _restored(self, state: State, data: PlayData) -> Mesh:
        wanted = state.drawing
        if (wanted.inputs, wanted.outputs) != (len(data.features), data.n_outputs):
            raise MeshError(
                f"the link's net has {wanted.inputs} inputs and {wanted.outputs} outputs, but {data.title} has "
                f"{len(data.features)} features and {data.n_outputs} outputs; copy the link again"
            )
        number = {name: k for k, name in enumerate(wanted.names)}
        pairs = np.array([(number[a], number[b]) for a, b in wanted.edges], np.int64).reshape(-1, 2)
        topology = Topology(wanted.inputs, len(wanted.hidden), wanted.outputs, pairs, bias=wanted.bias)
        order = np.lexsort((pairs[:, 0], pairs[:, 1]))
        weights = np.array(list(wanted.edges.values()))[order]
        kinds = list(wanted.hidden.values()) or "tanh"
        return Mesh(topology, state.ticks, kinds, weights=weights, dtype="float64")

    # -- the net and its samples ---------------------------------------------------------------------------------

    def _graph(self, kind: str, hidden: int) -> Topology:
        sizes = len(self.data.features), hidden, self.data.n_outputs
        if kind == "none" or hidden == 0:
            return Topology.layered([sizes[0], sizes[2]])
        if kind == "mesh":
            whole = Topology.mesh(*sizes)
            if whole.n_edges <= 400:
                return whole
            allowed = Topology.mesh(*sizes, feedback=False).n_edges - hidden - sizes[2]
            share = min((1000 - hidden - sizes[2]) / allowed, 1.0)  # what can still be seen
            return Topology.mesh(*sizes, density=max(share, 0.05), feedback=False, random_state=self.data.seed)
        if kind == "layered":
            return Topology.layered(sizes)
        return Topology.cascade(*sizes) if kind == "cascade" else Topology.columns(*sizes)

    def _begin(self, topology: Topology) -> None:
        """Another net, with weights of its own."""
        ticks = max(3, topology.default_ticks()) if topology.n_hidden else 1
        mesh = Mesh(topology, min(ticks, edits.MOST_TICKS), "tanh", dtype="float64", random_state=self.data.seed)
        self.learner = new_learner(mesh, self.data, self.solver, self.rate)
        self.mesh, self.names = mesh, edits.names_of(topology)
        self.budget = max(self.budget, topology.n_edges)
        self._settled()

    def _settled(self) -> None:
        """What goes with a new net, or other samples."""
        self.rng = np.random.default_rng([self.data.seed, 1])
        self.samples = as_samples(self.mesh, self.data.X, self.data.y, self.data.loss)
        if self.sample is None or self.sample.shape[1] != len(self.data.features):
            self.sample = self.data.X[:1]
        self.undone, self.redone = [], []
        self._fresh()

    def _fresh(self) -> None:
        """Nothing has been learned yet."""
        self.told, self.units, self.dirty = Told(math.nan, math.nan), 1, True
        self._measure()
        self.version += 1

    def _measure(self) -> None:
        """What this very net makes of the samples."""
        if not self.data.streams:
            loss, correct = self.samples.evaluate(self.mesh, 1)
            rate = self.samples.accuracy(correct) if self.data.task == "classify" else math.nan
            self.told = Told(loss, rate)

    def _restart(self) -> None:
        self.learner = new_learner(self.mesh, self.data, self.solver, self.rate)
        self._fresh()

    def _take(self, data: PlayData) -> Iterator[Message]:
        """Other samples: the net stays if it fits them."""
        alike = (len(data.features), data.n_outputs) == (len(self.data.features), self.data.n_outputs)
        same_kind = data.hidden == self.data.hidden and data.task == self.data.task
        kept, before = dict(self.__dict__), self.data
        self.running = False
        self.data, self.sample = data, None
        if data.streams and not self.solver.startswith("stream"):
            self.solver, self.pace = "stream", STREAM_PACE
        elif before.streams and not data.streams:
            self.solver, self.pace = "adam", PACE
        try:
            if alike and same_kind:
                self.learner = new_learner(self.mesh, data, self.solver, self.rate)
                self._settled()
            else:
                if self.solver == "lm" and data.name == "digits":
                    self.solver = "adam"  # an iteration of lm would take seconds
                self._begin(self._graph("mesh", data.hidden))
        except MeshError:  # as it was
            self.__dict__.update(kept)
            raise
        yield from self._everything()

    def _drawing(self) -> edits.Drawing:
        return edits.drawing_of(self.mesh, self.names)

    def _edited(self, wanted: edits.Drawing) -> Iterator[Message]:
        """Another graph, while it learns."""
        before = (self._drawing(), self.mesh.ticks, False)
        self._become(wanted, self.mesh.ticks)
        self._remember(before)
        yield from self._changed()

    def _become(self, wanted: edits.Drawing, ticks: int, whole: bool = False) -> None:
        """Bring mesh and solver there; if one of them refuses, all is as it was."""
        now, before, names = self._drawing(), self.mesh.ticks, self.names
        try:
            self.mesh.ticks = max(ticks, before)  # with which both graphs reach their outputs
            self.names, growth, change = edits.become(self.mesh, names, wanted, whole)
            self.mesh.ticks = ticks
            self._rewired(growth, change)
        except MeshError:  # the solver has not moved: it only has to look at the arrays of the mesh again
            self.mesh.ticks = max(ticks, before)
            self.names = edits.become(self.mesh, self.names, now, whole=True)[0]
            self.mesh.ticks = before
            t, edges = self.mesh.topology, np.arange(self.mesh.topology.n_edges)
            self._rewired(Growth(t, np.arange(t.n_neurons), edges), Change(edges, np.arange(t.n_hidden), edges))
            raise

    def _remember(self, before: tuple[edits.Drawing, int, bool]) -> None:
        self.undone = [*self.undone[1 - MOST_UNDO :], before]
        self.redone = []

    def _rewired(self, growth: Growth, change: Change) -> None:
        self.learner.rewire(growth, change)
        self.version, self.dirty = self.version + 1, True

    def _recent(self) -> InMemorySamples:
        """The samples, of a stream the last ones."""
        if not self.data.streams:
            return self.samples
        X, y = drift(500, max(self.learner.done - 500, 0), self.data.seed)
        return as_samples(self.mesh, self.data.scaling.inputs(X), y, self.data.loss)

    def _absent(self, src: int | None = None, dst: int | None = None) -> tuple[Any, Any, Any]:
        """Edges that are not there, and the gradient that each would have with weight 0."""
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
        X, y, options = sample_of(self._recent(), np.random.default_rng(0), SCORED)
        scores = self.mesh.growth_scores(
            X, y, self.data.loss, pairs[:, 0], pairs[:, 1], gradient="adjoint", n_jobs=1, **options
        )
        return pairs[:, 0], pairs[:, 1], scores

    # -- learning ------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> float:
        """Seconds that may pass before `advance` is called, if no order comes."""
        if not self.running:
            return 60.0
        return 0.0 if self.pace == 0 or self.credit >= 1 else min(1 / self.pace, 0.02)

    def advance(self) -> list[Message]:
        """Learn for a moment, if it is to; what the page is to see of it."""
        if not self.running:
            return []
        now = time.perf_counter()
        passed, self.last_slice = now - self.last_slice, now
        most = self.units
        if self.pace:
            self.credit = min(self.credit + self.pace * passed, max(self.pace * 0.2, 1.0))
            most = min(most, int(self.credit))
            if most < 1:
                return []
            self.credit -= most
        return [*self._learn(most), *self._frames(only_due=True)]

    def _learn(self, most: int) -> Iterator[Message]:
        began = time.perf_counter()
        try:
            self.told = self.learner.advance(most)
        except MeshError as error:
            self.running = False
            yield self._settings()
            yield said("error", text=str(error))
            return
        took, self.dirty = time.perf_counter() - began, True
        self.units = int(np.clip(most * SLICE / max(took, 1e-5), 1, min(max(2 * most, self.units), MOST_UNITS)))
        if self.told.note:
            yield said("said", text=self.told.note)
        if self.told.finished:
            self.running = False
            yield self._settings()
            yield from self._frames()

    # -- what the page sees --------------------------------------------------------------------------------------

    def _everything(self) -> Iterator[Message]:
        yield self._data_message()
        yield from self._changed()
        yield self._settings()

    def _changed(self) -> Iterator[Message]:
        if not self.running:  # else the next moment of learning says it
            self._measure()
        yield self._graph_message()
        yield from self._frames()

    def _table_facts(self) -> dict[str, Any]:
        if self.table is None:
            return {}
        held = self.table
        return {
            "name": held.name, "columns": held.columns, "target": held.target or held.columns[-1],
            "impute": held.impute, "drop": held.drop, "text": held.text if held.told else None,
        }  # fmt: skip

    def _data_message(self) -> Message:
        data = self.data
        flat = len(data.features) == 2
        arrays: dict[str, NDArray[Any]] = {}
        if flat and not data.streams:
            arrays = {"x": data.raw[:, 0], "y": data.raw[:, 1]}
            if data.task == "classify":
                arrays["label"] = np.concatenate([data.y, data.test_y]).astype(np.uint8)
        return packed(
            "data", arrays, name=data.name, title=data.title, task=data.task, features=data.features,
            classes=[str(c) for c in data.classes], train=len(data.y), test=len(data.test_y), paper=data.paper,
            figure=data.figure, notes=data.notes, seed=data.seed, streams=data.streams, flat=flat,
        )  # fmt: skip

    def _graph_message(self) -> Message:
        t, names = self.mesh.topology, self.names
        return said(
            "graph", names=names, inputs=t.n_inputs, outputs=t.n_outputs, bias=t.bias,
            activations=self.mesh.activations, src=t.src.tolist(), dst=t.dst.tolist(),
            dead=np.flatnonzero(self.mesh.dead_edges()).tolist(), ticks=self.mesh.ticks, version=self.version,
            undo=len(self.undone), redo=len(self.redone),
        )  # fmt: skip

    def _settings(self) -> Message:
        return said(
            "settings", running=self.running, solver=self.solver, rate=self.rate, pace=self.pace, budget=self.budget,
            ticks=self.mesh.ticks, unit=self.learner.unit, uses_rate=self.solver in ("adam", "stream-adam"),
        )  # fmt: skip

    def _frames(self, only_due: bool = False) -> Iterator[Message]:
        """Where it stands; now, or if it is time and the page has taken in what it was sent before."""
        now = time.perf_counter()
        if only_due and (now - self.last_frame < FRAME or self.awaited >= UNDER_WAY):
            return
        self.last_frame = now
        self.awaited += 1
        self.test = self._tested()
        sample = self.sample if self.sample is not None else self.data.X[:1]
        states = self.mesh.states(sample, n_jobs=1)[:, 0]
        yield packed(
            "frame", {"weights": self.mesh.weights, "states": states.ravel()}, version=self.version,
            done=self.learner.done, loss=self.told.loss, rate=self.told.rate, test=self.test,
        )  # fmt: skip
        if self.dirty and (not only_due or now - self.last_picture >= PICTURE):
            self.last_picture, self.dirty = now, False
            yield self._picture()

    def _tested(self) -> float:
        """The share of correct predictions among the held-out samples, or R²; a stream holds nothing out."""
        data = self.data
        if data.streams:
            return math.nan
        out = self.mesh.forward(data.test_X, n_jobs=1)
        if data.task == "classify":
            return float((out.argmax(axis=1) == data.test_y).mean())
        rest, whole = ((data.test_y - out) ** 2).sum(), ((data.test_y - data.test_y.mean()) ** 2).sum()
        return float(1 - rest / whole) if whole > 0 else math.nan

    def _picture(self) -> Message:
        """Decision regions over two features; else what is predicted against what is true."""
        data = self.data
        if data.task == "regress":
            true, found = data.test_y[:SHOWN], self.mesh.forward(data.test_X[:SHOWN], n_jobs=1)
            values = (data.scaling.values(v)[:, 0] for v in (true, found))
            return packed("scatter", dict(zip(("true", "found"), values, strict=True)), target=data.target)
        if len(data.features) != 2:
            found, count = self.mesh.forward(data.test_X, n_jobs=1).argmax(axis=1), data.n_outputs
            table = np.bincount(data.test_y * count + found, minlength=count * count).reshape(count, count)
            return said("confusion", counts=table.tolist())
        low, high = data.raw.min(axis=0), data.raw.max(axis=0)
        low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
        across, up = (np.linspace(low[k], high[k], GRID) for k in range(2))
        points = np.stack(np.meshgrid(across, up[::-1]), axis=-1).reshape(-1, 2)  # the first row is the highest
        out = self.mesh.forward(data.scaling.inputs(points), n_jobs=1)
        out = np.exp(out - out.max(axis=1, keepdims=True))
        sure = out.max(axis=1) / out.sum(axis=1)
        arrays = {"best": out.argmax(axis=1).astype(np.uint8), "sure": np.rint(255 * sure).astype(np.uint8)}
        if data.streams:  # what has just come
            X, y = drift(300, max(self.learner.done - 300, 0), data.seed)
            arrays |= {"x": X[:, 0], "y": X[:, 1], "label": y.astype(np.uint8)}
        return packed("regions", arrays, size=GRID, low=low.tolist(), high=high.tolist())
