"""`Trainer`: a generator of history rows over restarts, validation, plateaus and best weights.

Its state can be taken at any moment, even after an interrupt in the middle of a row: it is that after the last whole
row, and a trainer made alike goes on from it bit by bit.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.training.history import History, HistoryRow
from meshnn.training.samples import Samples
from meshnn.training.search import search
from meshnn.training.settings import Settings
from meshnn.training.solvers import Choice, Progress, Solver, choose_solver, is_noisy, solver_named
from meshnn.training.solvers.base import sizes_of
from meshnn.training.state import Count, Numbers, Parameters, RandomState, Real, Vector, from_tree, to_tree
from meshnn.training.structure.runtime import Structure, as_policies, with_penalties

Values = Annotated[Array, Vector("values")]


@dataclass
class Start:
    """The best weights of one start, and its plateau."""

    best: Parameters
    value: Real = math.inf  # loss, or negative score, of the best weights
    epoch: Count = 0  # in which the plateau was last left
    plateau: Real = math.inf
    fallen: Real = 0.0  # sum of what was gained under each penalty there was


@dataclass
class Kept:
    """The best start that has ended."""

    parameters: Parameters
    value: Real
    restart: Count
    l2: Real
    memory: dict[str, Any] | None
    penalties: Numbers


@dataclass
class Found:
    """The solver and the penalty that the search has chosen."""

    solver: str
    l2: Any
    reason: str


@dataclass
class TrainerState:
    """Where training stands between two rows."""

    graph: str
    start: Start
    random: RandomState
    weights: Values
    solver: dict[str, Any]
    epochs: Count = 0
    restart: Count = 0
    finished: bool = False
    ended: bool = False  # whether the next row belongs to the next start
    ran_out: bool = False  # whether only the number of epochs has ended it
    seconds: Real = 0.0
    last: Values | None = None  # of a finished run; `weights` are the best ones then
    kept: Kept | None = None
    structure: dict[str, Any] | None = None
    message: str = ""  # of the search, until there is a row to note it in
    found: Found | None = None  # None as long as the search has not run


class Trainer:
    """Trains the weights of a mesh in place.

    Parameters
    ----------
    mesh : Mesh
        The first start takes the weights it has; further ones draw new ones.
    samples, settings : Samples, Settings
    validation : Samples, optional
        Held-out samples: the weights with the lowest loss on them are kept.
    seed : int
        Of the order of the samples and of the restarts.
    structure : policy or list of policies, optional
        How the graph changes meanwhile, see `meshnn.training.structure`.
    choice : Choice, optional
        The solver, if it has been chosen already (with `with_penalties`, or the choice means other settings).
    score : callable, optional
        Judges the held-out samples instead of the loss: the weights with the highest score are kept.
    memory : (str, Tree), optional
        Name and memory of the solver at the end of an earlier fit of this net; the same solver goes on with it.
    drawn : callable, optional
        Changes the weights drawn for another start, from the mesh and them.
    """

    def __init__(
        self,
        mesh: Mesh,
        samples: Samples,
        settings: Settings,
        validation: Samples | None = None,
        seed: int = 0,
        structure: Any = None,
        choice: Choice | None = None,
        score: Callable[[], float] | None = None,
        memory: tuple[str, Tree | None] = ("", None),
        drawn: Callable[[Mesh, Array], Array] | None = None,
    ) -> None:
        policies = as_policies(structure)
        settings = with_penalties(settings, policies)
        if policies and settings.n_restarts > 1:
            raise MeshError("a graph that changes has one start; set n_restarts=1, or fit several times")
        self.mesh, self.samples, self.settings, self.validation = mesh, samples, settings, validation
        if choice is None:
            noisy, columns = is_noisy(samples.loss, policies), samples.columns(mesh.topology.n_outputs)
            choice = choose_solver(settings, len(mesh.live_parameters()), samples.count, columns, noisy)
        self.choice, self.score, self._drawn = choice, score, drawn
        self.history = History()
        self.on_pulse: Callable[[int], None] | None = None  # see `SolverRun.pulse`
        self._rng = np.random.default_rng(seed)
        known = memory[1] if memory[0] == choice.solver.name and choice.solver.warms else None
        # penalties are tried before the first row, unless they are known
        self._searches = settings.l2 == "auto" and not policies and known is None
        self._seed = seed
        self._topology, self._ticks = mesh.topology, mesh.ticks
        graph = f"{mesh.topology._digest.hex()}, {mesh.ticks} ticks, {mesh.dtype}"
        self._s = TrainerState(graph, Start(mesh.parameters), {}, mesh.values, {})
        self._begin()
        if known is not None:
            self._run.recall(known)
        own = np.random.default_rng([seed, 5])
        self._structure = Structure(policies, mesh, samples, self.epochs, own) if policies else None
        self._mark = self._marked()

    def _begin(self) -> None:
        """Begin a start from the weights there are."""
        self._s.start = Start(self.mesh.parameters.copy())
        self._run = self.choice.solver.start(self.mesh, self.samples, self.settings, self._rng)
        self._run.pulse = self._pulse

    def _pulse(self, done: int) -> None:
        """In the middle of an epoch, after this many of its samples."""
        self._mark = self._marked()
        if self.on_pulse is not None:
            self.on_pulse(done)

    def _now(self) -> Kept:
        """This start, as it would be kept."""
        run, memory = self._run, self._run.memory() if self.choice.solver.warms else None
        start = self._s.start
        return Kept(start.best.copy(), start.value, self._s.restart, run.l2, memory, run.penalties.copy())

    @property
    def best(self) -> Kept:
        """The best start so far: what would be kept if training stopped now."""
        kept = self._s.kept
        return kept if kept is not None and kept.value <= self._s.start.value else self._now()

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to do."""
        return self._s.finished

    @property
    def goes_on(self) -> bool:
        """Whether the state is that of an unfinished run."""
        return not self._mark[0]["finished"]

    @property
    def changes(self) -> bool:
        """Whether policies change the graph."""
        return self._structure is not None

    @property
    def epochs(self) -> int:
        """Those of one start, at most."""
        return self._run.epochs

    def rows(self) -> Iterator[HistoryRow]:
        """Train; the weights end as the best ones, whether this runs to its end or `stop` ends it."""
        limit = math.inf if self.settings.max_seconds is None else self.settings.max_seconds
        while not self.finished:
            if self.mesh.topology is not self._topology or self.mesh.ticks != self._ticks:
                raise MeshError("the mesh got another graph or other ticks during training; start again")
            there_is_time = self._s.seconds < limit
            if there_is_time:
                self.history.append(self._advance())
                self._mark = self._marked()
            if not self.finished and self._s.seconds >= limit:
                self.stop(f"stopped: {limit:g} seconds are used up", to_go_on=True)
            if there_is_time:
                yield self.history[-1]

    def fall_at_end(self) -> float:
        """By how much the loss fell per epoch where the start that is kept ran out of epochs; 0 if it came to rest.

        It had if its rate had come down to 0, or if the loss fell by no more than `tol` per epoch.
        """
        tol = self.settings.tol
        if self.choice.solver.comes_to_rest or tol == 0.0 or self._structure is not None:
            return 0.0
        best = self.best.restart
        rows = [row for row in self.history if row.restart == best and not math.isnan(row.loss)]
        if len(rows) < 2 or rows[-1].epoch < self.epochs:
            return 0.0
        # the mean of some rows against that of those before: the loss of mini-batches goes up and down
        width = min(10, len(rows) // 2)
        before, last = rows[-2 * width : -width], rows[-width:]
        fell = sum(row.loss for row in before) / width - sum(row.loss for row in last) / width
        fall = fell / (last[-1].epoch - before[-1].epoch)
        return fall if fall > tol else 0.0

    def _advance(self) -> HistoryRow:
        """Compute one row and all that follows from it."""
        began, now = time.perf_counter(), self._s
        if self._searches:
            now.message = self._search()
        if now.ended:
            self._next_start()
        run, restart = self._run, now.restart
        if run.lands:
            self.mesh.parameters[:] = now.start.best
        progress = run.advance(run.epochs - run.epoch)
        value, held_out, accuracy = self._evaluated(progress)
        note, stopped = (progress.note, False) if progress.note else self._judge(value, progress)
        notes, now.message = [now.message, note], ""
        if self._structure is not None:
            notes += self._edit(self._structure, progress.loss)
        if run.epoch >= run.epochs or stopped:
            now.ran_out, now.last = not stopped, self.mesh.values.copy()
            self._end_start()
            for unmet in () if self._structure is None else self._structure.unmet(run.epoch):
                warnings.warn(unmet, UserWarning, stacklevel=4)
        now.seconds += time.perf_counter() - began
        accuracy = accuracy if self.samples.loss.classifies else math.nan
        measured = (run.epoch, progress.loss, held_out, accuracy, progress.gradient_norm, progress.rate, now.seconds)
        return HistoryRow(*measured, self.mesh.topology.n_edges, restart, "; ".join(filter(None, notes)))

    def _evaluated(self, progress: Progress) -> tuple[float, float, float]:
        """Return the value that is minimised, the loss or score of held-out samples, and the accuracy."""
        held_out, accuracy = math.nan, self.samples.accuracy(progress.correct)
        if self.validation is not None:
            held_out, correct = self.validation.evaluate(self.mesh, self.settings.n_jobs)
            accuracy = self.validation.accuracy(correct)
        value = progress.loss if self.validation is None else held_out
        if self.score is not None:
            held_out = self.score()
            value = -held_out
        return value, held_out, accuracy

    def _search(self) -> str:
        """Find the penalty and the solver by trying; return a message about them."""
        self._searches = False
        seed = int(np.random.default_rng([self._seed, 6]).integers(2**63))
        found = search(self.mesh, self.samples, self.settings, self.choice, seed, self.validation)
        if found is None:
            return ""
        self._take(found.solver, found.l2, f"{self.choice.reason}; {found.message}")
        return found.message

    def _take(self, solver: Solver, l2: Any, reason: str) -> None:
        """Begin with what the search has found."""
        self.choice = Choice(solver, reason)
        self.settings = replace(self.settings, l2=l2)
        self._begin()

    def _edit(self, structure: Structure, loss: float) -> list[str]:
        """Let the graph change; return what was done."""
        change, notes = structure.edit(self._run.epoch, loss)
        if change is not None:
            self._run.rewire(change)
            self._topology = self.mesh.topology
            # the best weights so far belong to another graph
            self._s.start = Start(self.mesh.parameters.copy(), epoch=self._run.epoch)
        return notes

    def _judge(self, value: float, progress: Progress) -> tuple[str, bool]:
        """Remember the best weights; return a note and whether this start ends here."""
        run, start, settings, finished = self._run, self._s.start, self.settings, progress.finished
        solver = self.choice.solver
        if value < start.value or (self.validation is None and solver.last_is_best):
            start.value, start.best = value, self.mesh.parameters.copy()
        if self.validation is None and progress.fell is not None:
            value = start.fallen = start.fallen - progress.fell
        if value < start.plateau - settings.tol:
            start.plateau, start.epoch = value, run.epoch
        if settings.tol == 0.0 or (self._structure is not None and self._structure.busy(run.epoch)):
            return "", False  # never to stop, or the graph is still to change
        patience = settings.patience
        if settings.max_epochs == "auto" and not solver.last_is_best:  # epochs of few samples are short
            patience = max(patience, run.epochs // 4)
        if not finished and not run.landed and run.epoch - start.epoch >= patience:
            which = "loss fell" if self.validation is None else "validation loss fell"
            if self.score is not None:
                which = "score of the held-out samples rose"
            finished = f"the {which} by less than {settings.tol:g} in {patience} epochs"
            if (left := run.land(finished)) > 0:
                return f"{finished}: the rate is brought down over {left} epochs", False
        return f"stopped: {finished}" if finished else "", bool(finished)

    def _end_start(self) -> None:
        """Keep the start that has ended, if it is the best so far.

        The next one begins with the next row: until then the mesh has the weights that this row is about.
        """
        now = self._s
        if now.kept is None or now.start.value < now.kept.value:
            now.kept = self._now()
        if now.restart + 1 < self.settings.n_restarts:
            now.ended = True
        else:
            now.finished = True
            self.mesh.parameters[:] = now.kept.parameters

    def _next_start(self) -> None:
        self._s.ended, self._s.restart = False, self._s.restart + 1
        weights = self.mesh.draw_weights(self._rng)
        self.mesh.weights = weights if self._drawn is None else self._drawn(self.mesh, weights)
        self._begin()

    def stop(self, reason: str, to_go_on: bool = False) -> None:
        """End here, with the best weights so far; a state `to_go_on` from stays that after the last whole row."""
        if not self.finished:
            self._s.finished = True
            self.mesh.parameters[:] = self.best.parameters
        if len(self.history):
            last = self.history[-1]
            self.history[-1] = last._replace(note=f"{last.note}; {reason}" if last.note else reason)
        if not to_go_on:
            self._mark = self._marked()

    def _marked(self) -> tuple[Tree, int, list[HistoryRow]]:
        """Where training stands between two rows. Arrays that are replaced, not written to, need no copy."""
        choice = self.choice
        state = replace(
            self._s,
            random=self._rng.bit_generator.state,
            weights=self.mesh.values.copy(),
            solver=self._run.state(),
            epochs=self.epochs,
            last=self._s.last if self.finished else None,
            structure=None if self._structure is None else self._structure.state(),
            found=None if self._searches else Found(choice.solver.name, self.settings.l2, choice.reason),
        )
        return to_tree(state), len(self.history), self.history.data[-1:]

    def state(self) -> Tree:
        """Everything needed to go on from after the last whole row."""
        tree, count, last = self._mark
        rows = self.history.data[: max(count - 1, 0)] + last  # stopping adds to the note of the last one
        return tree | {"history": History(rows).to_tree()}

    def restore(self, tree: Tree) -> None:
        """Go on from a state of a trainer made with the same mesh, samples and settings, but perhaps more epochs."""
        if tree["graph"] != self._s.graph:
            raise MeshError("the checkpoint was made with another graph; does topology() draw random edges?")
        if self._structure is not None:
            self._structure.restore(tree["structure"])
            self._topology = self.mesh.topology
            self._begin()
        named = {field.name: tree[field.name] for field in fields(TrainerState)}
        state = from_tree(TrainerState, named, sizes_of(self.mesh))
        if state.found is not None:
            self._searches, name = False, state.found.solver
            given = (solver for solver in self.settings.candidates if solver.name == name)  # with their options
            self._take(next(given, solver_named(name)), state.found.l2, state.found.reason)
        if state.restart >= self.settings.n_restarts:
            raise MeshError(f"restart must be below {self.settings.n_restarts}, got {state.restart}")
        if state.kept is not None and state.kept.memory is not None:
            state.kept.memory = self.choice.solver.checked_memory(state.kept.memory, self.mesh)
        self.history, self._s = History.from_tree(tree["history"]), state
        self._run.restore(state.solver)
        self.mesh.values[:] = state.weights
        self._rng.bit_generator.state = state.random
        if state.ran_out and state.finished and self._run.epoch < self.epochs:
            # there are more epochs now: go on from the last weights, which need not be the best
            state.finished, state.kept = False, None
            if state.last is not None:
                self.mesh.values[:] = state.last
        self._mark = self._marked()
