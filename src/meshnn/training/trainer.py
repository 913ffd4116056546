"""`Trainer`: training with restarts, validation, stopping rules and best weights, as a generator of history rows.

Its state is available at any time, also after an interrupt in the middle of a row: it is the state after the last
complete row. A trainer with the same arguments resumes from it and produces the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import MeshError, warn
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
    """The best weights of one start, and the data of the stopping rule."""

    best: Parameters
    value: Real = math.inf  # loss, or negative score, of the best weights
    epoch: Count = 0  # of the last improvement by more than `tol`
    plateau: Real = math.inf  # value at that epoch
    fallen: Real = 0.0  # minus the sum of the decreases of the objective, whose penalty may have changed


@dataclass
class StartResult:
    """The result of the best start."""

    parameters: Parameters
    value: Real
    restart: Count
    l2: Real
    memory: dict[str, Any] | None
    penalties: Numbers


@dataclass
class SearchOutcome:
    """The solver and the penalty that the search has selected."""

    solver: str
    l2: Any
    reason: str
    loss: Real


@dataclass
class TrainerState:
    """The state of training between two rows."""

    graph: str
    start: Start
    random: RandomState
    weights: Values
    solver: dict[str, Any]
    epochs: Count = 0
    restart: Count = 0
    finished: bool = False
    ended: bool = False  # whether the next row belongs to the next start
    ran_out: bool = False  # whether the last start ended only because of the maximum number of epochs
    seconds: Real = 0.0
    last: Values | None = None  # final weights of a finished run, whose `weights` are the best ones
    kept: StartResult | None = None
    structure: dict[str, Any] | None = None
    message: str = ""  # of the search, until the next row notes it
    found: SearchOutcome | None = None  # None until the search has run


class Trainer:
    """Trains the weights of a mesh in place.

    Parameters
    ----------
    mesh : Mesh
        The mesh to train. The first start uses its weights; restarts draw new ones.
    samples : Samples
        The training samples.
    settings : Settings
        The options of the run.
    validation : Samples, optional
        Hold-out samples: the weights with the lowest loss on them are kept.
    seed : int
        Seed of the sample order and of the restarts, default 0.
    structure : policy or list of policies, optional
        Policies that change the graph during training, see `meshnn.training.structure`.
    choice : Choice, optional
        The solver, if already chosen. It must have been chosen with the settings of `with_penalties`.
    score : callable, optional
        Returns a score of the hold-out samples that replaces the loss: the weights with the highest score are kept.
    memory : (str, Tree), optional
        Name and memory of the solver after an earlier fit of this network, used if the solver is the same.
    drawn : callable, optional
        Function of (mesh, weights) that returns modified initial weights of a restart.
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
            raise MeshError(
                "`structure` cannot be combined with several starts; set n_restarts=1, or fit several times"
            )
        self.mesh, self.samples, self.settings, self.validation = mesh, samples, settings, validation
        if choice is None:
            noisy, columns = is_noisy(samples.loss, policies), samples.columns(mesh.topology.n_outputs)
            choice = choose_solver(settings, len(mesh.live_parameters()), samples.count, columns, noisy)
        self.choice, self.score, self._drawn = choice, score, drawn
        self.history = History()
        self.on_pulse: Callable[[int], None] | None = None  # see `SolverRun.pulse`
        self._rng = np.random.default_rng(seed)
        known = memory[1] if memory[0] == choice.solver.name and choice.solver.warm_starts_with_memory else None
        # a warm start keeps its penalty and needs no search
        self._searches = settings.l2 == "auto" and not policies and known is None
        self._seed = seed
        self.searched_loss = math.nan  # on held-out samples of the search
        self._topology, self._ticks = mesh.topology, mesh.ticks
        graph = f"{mesh.topology._digest.hex()}, {mesh.ticks} ticks, {mesh.dtype}"
        self._state = TrainerState(graph, Start(mesh.parameters), {}, mesh.values, {})
        self._begin()
        if known is not None:
            self._run.recall(known)
        own = np.random.default_rng([seed, 5])
        self._structure = Structure(policies, mesh, samples, self.epochs, own) if policies else None
        self._record = self._make_record()

    def _begin(self) -> None:
        """Begin a start from the current weights."""
        self._state.start = Start(self.mesh.parameters.copy())
        self._run = self.choice.solver.start(self.mesh, self.samples, self.settings, self._rng)
        self._run.pulse = self._pulse

    def _pulse(self, done: int) -> None:
        """Record the state in the middle of an epoch, after `done` of its samples."""
        self._record = self._make_record()
        if self.on_pulse is not None:
            self.on_pulse(done)

    def _current_result(self) -> StartResult:
        """Return the current start in the form in which it is kept."""
        run, memory = self._run, self._run.memory() if self.choice.solver.warm_starts_with_memory else None
        start = self._state.start
        return StartResult(start.best.copy(), start.value, self._state.restart, run.l2, memory, run.penalties.copy())

    @property
    def best(self) -> StartResult:
        """The best start so far, which is kept if training stops now."""
        kept = self._state.kept
        return kept if kept is not None and kept.value <= self._state.start.value else self._current_result()

    @property
    def finished(self) -> bool:
        """Whether training is finished."""
        return self._state.finished

    @property
    def goes_on(self) -> bool:
        """Whether the recorded state is that of an unfinished run."""
        return not self._record[0]["finished"]

    @property
    def changes(self) -> bool:
        """Whether policies change the graph."""
        return self._structure is not None

    @property
    def epochs(self) -> int:
        """Maximum number of epochs per start."""
        return self._run.epochs

    def rows(self) -> Iterator[HistoryRow]:
        """Train and yield the rows; at the end of training or after `stop`, the mesh has the best weights."""
        limit = math.inf if self.settings.max_seconds is None else self.settings.max_seconds
        while not self.finished:
            if self.mesh.topology is not self._topology or self.mesh.ticks != self._ticks:
                raise MeshError(
                    "the graph or the ticks of the mesh were changed during training; start a new training run"
                )
            has_time = self._state.seconds < limit
            if has_time:
                self.history.append(self._advance())
                self._record = self._make_record()
            if not self.finished and self._state.seconds >= limit:
                self.stop("stopped: time limit reached", to_go_on=True)
            if has_time:
                yield self.history[-1]

    def fall_at_end(self) -> float:
        """Return the decrease of the loss per epoch at the end of the best start if it ran out of epochs, else 0.

        The result is also 0 if the learning rate was reduced to 0, or if the decrease is at most `tol` per epoch.
        """
        tol = self.settings.tol
        if self.choice.solver.decays_to_zero or tol == 0.0 or self._structure is not None:
            return 0.0
        best = self.best.restart
        rows = [row for row in self.history if row.restart == best and not math.isnan(row.loss)]
        if len(rows) < 2 or rows[-1].epoch < self.epochs:
            return 0.0
        # means over several rows, since the loss of mini-batches fluctuates
        width = min(10, len(rows) // 2)
        before, last = rows[-2 * width : -width], rows[-width:]
        fell = sum(row.loss for row in before) / width - sum(row.loss for row in last) / width
        fall = fell / (last[-1].epoch - before[-1].epoch)
        return fall if fall > tol else 0.0

    def _advance(self) -> HistoryRow:
        """Compute one row and apply the stopping rule, the policies and the end of a start."""
        began, now = time.perf_counter(), self._state
        if self._searches:
            now.message = self._search()
        if now.ended:
            self._next_start()
        run, restart = self._run, now.restart
        if run.decay_begins:
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
                warn(unmet)
        now.seconds += time.perf_counter() - began
        accuracy = accuracy if self.samples.loss.classifies else math.nan
        measured = (run.epoch, progress.loss, held_out, accuracy, progress.gradient_norm, progress.rate, now.seconds)
        return HistoryRow(*measured, self.mesh.topology.n_edges, restart, "; ".join(filter(None, notes)))

    def _evaluated(self, progress: Progress) -> tuple[float, float, float]:
        """Return the value that is minimised, the loss or score of the hold-out set, and the accuracy."""
        held_out, accuracy = math.nan, self.samples.accuracy(progress.correct)
        if self.validation is not None:
            held_out, correct = self.validation.evaluate(self.mesh, self.settings.n_jobs)
            accuracy = self.validation.accuracy(correct)
        value = progress.loss if self.validation is None else held_out
        if self.score is not None:
            held_out = self.score()
            value = -held_out
        return value, held_out, accuracy

    def search(self) -> None:
        """Select the penalty and the solver now, instead of before the first row."""
        if self._searches:
            began = time.perf_counter()
            self._state.message = self._search()
            self._state.seconds += time.perf_counter() - began
            self._record = self._make_record()

    def _search(self) -> str:
        """Select the penalty and the solver by trials; return a message about them."""
        self._searches = False
        seed = int(np.random.default_rng([self._seed, 6]).integers(2**63))
        found = search(self.mesh, self.samples, self.settings, self.choice, seed, self.validation)
        if found is None:
            return ""
        self._begin_selected(found.solver, found.l2, f"{self.choice.reason}; {found.message}", found.loss)
        return found.message

    def _begin_selected(self, solver: Solver, l2: Any, reason: str, loss: float) -> None:
        """Begin with the solver and the penalty that the search has selected."""
        self.searched_loss = loss
        self.choice = Choice(solver, reason)
        self.settings = replace(self.settings, l2=l2)
        self._begin()

    def _edit(self, structure: Structure, loss: float) -> list[str]:
        """Let the policies change the graph; return notes about the changes."""
        change, notes = structure.edit(self._run.epoch, loss)
        if change is not None:
            self._run.rewire(change)
            self._topology = self.mesh.topology
            # the best weights so far belong to another graph
            self._state.start = Start(self.mesh.parameters.copy(), epoch=self._run.epoch)
        return notes

    def _judge(self, value: float, progress: Progress) -> tuple[str, bool]:
        """Record the best weights; return a note and whether this start ends here."""
        run, start, settings, finished = self._run, self._state.start, self.settings, progress.finished
        solver = self.choice.solver
        if value < start.value or (self.validation is None and solver.last_is_best):
            start.value, start.best = value, self.mesh.parameters.copy()
        if self.validation is None and progress.fell is not None:
            value = start.fallen = start.fallen - progress.fell
        if value < start.plateau - settings.tol:
            start.plateau, start.epoch = value, run.epoch
        if settings.tol == 0.0 or (self._structure is not None and self._structure.busy(run.epoch)):
            return "", False  # stopping is disabled, or the graph may still change
        patience = settings.patience
        if settings.max_epochs == "auto" and not solver.last_is_best:  # epochs of small data sets are short
            patience = max(patience, run.epochs // 4)
        if not finished and not run.decay_reason and run.epoch - start.epoch >= patience:
            trend = "loss fell" if self.validation is None else "validation loss fell"
            if self.score is not None:
                trend = "validation score rose"
            finished = f"the {trend} by less than {settings.tol:g} in {patience} epochs"
            if (left := run.begin_decay(finished)) > 0:
                return f"{finished}: the learning rate is reduced to 0 over {left} epochs", False
        return f"stopped: {finished}" if finished else "", bool(finished)

    def _end_start(self) -> None:
        """Keep the start that has ended if it is the best so far.

        The next start begins with the next row, so that the mesh has the weights of this row until then.
        """
        now = self._state
        if now.kept is None or now.start.value < now.kept.value:
            now.kept = self._current_result()
        if now.restart + 1 < self.settings.n_restarts:
            now.ended = True
        else:
            now.finished = True
            self.mesh.parameters[:] = now.kept.parameters

    def _next_start(self) -> None:
        self._state.ended, self._state.restart = False, self._state.restart + 1
        weights = self.mesh.draw_weights(self._rng)
        self.mesh.weights = weights if self._drawn is None else self._drawn(self.mesh, weights)
        self._begin()

    def stop(self, reason: str, to_go_on: bool = False) -> None:
        """End training with the best weights so far; `to_go_on` records the state of an unfinished run."""
        if not self.finished:
            self._state.finished = True
            self.mesh.parameters[:] = self.best.parameters
        if len(self.history):
            last = self.history[-1]
            self.history[-1] = last._replace(note=f"{last.note}; {reason}" if last.note else reason)
        if not to_go_on:
            self._record = self._make_record()

    def _make_record(self) -> tuple[Tree, int, list[HistoryRow]]:
        """Return a record of the state between two rows. Arrays that are replaced, never written to, are not copied."""
        choice = self.choice
        state = replace(
            self._state,
            random=self._rng.bit_generator.state,
            weights=self.mesh.values.copy(),
            solver=self._run.state(),
            epochs=self.epochs,
            last=self._state.last if self.finished else None,
            structure=None if self._structure is None else self._structure.state(),
            found=None
            if self._searches
            else SearchOutcome(choice.solver.name, self.settings.l2, choice.reason, self.searched_loss),
        )
        return to_tree(state), len(self.history), self.history.data[-1:]

    def state(self) -> Tree:
        """Return the state after the last complete row, from which a run can resume."""
        tree, count, last = self._record
        rows = self.history.data[: max(count - 1, 0)] + last  # `stop` changes the note of the last row
        return tree | {"history": History(rows).to_tree()}

    def restore(self, tree: Tree) -> None:
        """Resume from a state of a trainer with the same arguments; only `max_epochs` may be larger."""
        if tree["graph"] != self._state.graph:
            raise MeshError(
                "the checkpoint belongs to another graph; if topology() draws random edges, pass a fixed seed"
            )
        if self._structure is not None:
            self._structure.restore(tree["structure"])
            self._topology = self.mesh.topology
            self._begin()
        named = {field.name: tree[field.name] for field in fields(TrainerState)}
        state = from_tree(TrainerState, named, sizes_of(self.mesh))
        if state.found is not None:
            self._searches, name = False, state.found.solver
            given = (solver for solver in self.settings.candidates if solver.name == name)  # with their options
            found = state.found
            self._begin_selected(next(given, solver_named(name)), found.l2, found.reason, found.loss)
        if state.restart >= self.settings.n_restarts:
            raise MeshError(f"restart must be below {self.settings.n_restarts}, got {state.restart}")
        if state.kept is not None and state.kept.memory is not None:
            state.kept.memory = self.choice.solver.checked_memory(state.kept.memory, self.mesh)
        self.history, self._state = History.from_tree(tree["history"]), state
        self._run.restore(state.solver)
        self.mesh.values[:] = state.weights
        self._rng.bit_generator.state = state.random
        if state.ran_out and state.finished and self._run.epoch < self.epochs:
            # max_epochs was increased: resume from the last weights, which need not be the best
            state.finished, state.kept = False, None
            if state.last is not None:
                self.mesh.values[:] = state.last
        self._record = self._make_record()
