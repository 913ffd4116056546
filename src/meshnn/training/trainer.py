"""`Trainer`: a generator of history rows over restarts, validation, plateaus and best weights.

It can be asked for its state at any moment, even after an interrupt in the middle of a row: the state is that after the
last whole row, and a trainer made alike and given it goes on bit by bit.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from meshnn.arguments import switch, whole_number
from meshnn.arrays import Array, FloatArray
from meshnn.checks import as_weights
from meshnn.errors import MeshError
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.training.history import History, HistoryRow
from meshnn.training.samples import Dataset
from meshnn.training.search import search
from meshnn.training.settings import Settings
from meshnn.training.solver import Progress, Solver, any_number
from meshnn.training.solvers import Choice, choose_solver, is_noisy, solver_named
from meshnn.training.structure.runtime import Structure, as_policies, with_penalties

__all__ = ["Trainer"]

_NUMBERS = ("best_value", "plateau_value", "fallen", "kept_value", "kept_restart", "kept_l2", "best_epoch")


#: Rows that are looked at to see whether the loss still falls, twice.
AT_END = 10


class Trainer:
    """Trains the weights of a mesh in place.

    Parameters
    ----------
    mesh : Mesh
        The first start takes the weights it has; further ones draw new ones.
    samples : Dataset
    settings : Settings
    validation : Dataset, optional
        Held-out samples: the weights with the lowest loss on them are kept.
    seed : int or SeedSequence
        Of the order of the samples and of the restarts.
    structure : policy or list of policies, optional
        How the graph changes meanwhile, see `meshnn.training.structure`.
    choice : Choice, optional
        The solver, if it has been chosen already: with `structure.with_penalties`, or the choice means other settings.
    score : callable, optional
        Judges the held-out samples instead of the loss: the weights with the highest score are kept.
    memory : (str, Tree), optional
        A solver and what it knew at the end of an earlier fit of this net; the same one goes on with it.
    drawn : callable, optional
        What becomes of weights drawn for another start, from the mesh and them.

    Attributes
    ----------
    history : History
    choice : Choice
        The solver and why it was taken.
    """

    def __init__(
        self,
        mesh: Mesh,
        samples: Dataset,
        settings: Settings,
        validation: Dataset | None = None,
        seed: int | np.random.SeedSequence = 0,
        structure: Any = None,
        choice: Choice | None = None,
        score: Callable[[], float] | None = None,
        memory: tuple[str, Tree | None] = ("", None),
        drawn: Callable[[Mesh, Array], Array] | None = None,
    ) -> None:
        policies = as_policies(structure)
        if policies and settings.n_restarts > 1:
            raise MeshError("a graph that changes has one start; set n_restarts=1, or fit several times")
        settings = with_penalties(settings, policies)
        self.mesh, self.samples, self.settings, self.validation = mesh, samples, settings, validation
        if choice is None:
            loss = samples.loss
            noisy, columns = is_noisy(loss, policies), samples.columns(mesh.topology.n_outputs)
            choice = choose_solver(settings, len(mesh.live_parameters()), samples.count, columns, noisy)
        self.choice, self.score, self._drawn = choice, score, drawn
        self.classifies = samples.loss.classifies
        self.history = History()
        self.on_pulse: Callable[[int], None] | None = None  # whoever wants to know, see `Solver.pulse`
        self.seconds = 0.0
        self.finished = False
        self._rng = np.random.default_rng(seed)
        goes_on = memory[1] is not None and memory[0] == choice.solver and choice.kind.warms
        # penalties are tried before the first row, unless they are known
        self._searches = settings.l2 == "auto" and not policies and not goes_on
        entropy = seed.entropy if isinstance(seed, np.random.SeedSequence) else seed
        self._entropy = np.atleast_1d(np.asarray(entropy, dtype=object)).tolist()
        own = np.random.default_rng([*self._entropy, 5])
        self._topology, self._ticks = mesh.topology, mesh.ticks
        self._graph = f"{mesh.topology._digest.hex()}, {mesh.ticks} ticks, {mesh.dtype}"
        self._words = ""  # what the search found, until there is a row to say it
        self._restart, self._ended = 0, False  # the start, and whether the next row belongs to another one
        self._ran_out, self._last = False, mesh.values  # whether epochs were all that ended it, and the last weights
        self._kept: Array | None = None  # parameters of the best start that has ended
        self._kept_value, self._kept_restart, self._kept_l2 = math.inf, 0, 0.0
        self._kept_memory: Tree | None = None
        self._kept_penalties: FloatArray | None = None
        self._solver = self._begin()
        if goes_on and memory[1] is not None:
            self._solver.restore(memory[1], stream=True)
        self._structure = Structure(policies, mesh, samples, self._solver.epochs, own) if policies else None
        self._mark = self._marked()

    def _begin(self) -> Solver:
        self._best_value, self._best_epoch = math.inf, 0  # of this start
        self._plateau_value = math.inf
        self._fallen = 0.0  # what has been gained under whatever penalty there was
        self._best = self.mesh.parameters.copy()
        solver = self.choice.kind(self.mesh, self.samples, self.settings, self._rng)
        solver.pulse = self._pulse
        return solver

    def _pulse(self, done: int) -> None:
        """In the middle of an epoch, after so many of its samples."""
        self._mark = self._marked()
        if self.on_pulse is not None:
            self.on_pulse(done)

    def _keeps_earlier(self) -> bool:
        """Whether an earlier start was better than this one is so far."""
        return self._kept is not None and self._kept_value <= self._best_value

    @property
    def best_parameters(self) -> Array:
        """Those that would be kept if training stopped now."""
        if self._kept is not None and self._keeps_earlier():
            return self._kept.copy()
        return self._best.copy()

    @property
    def changes(self) -> bool:
        """Whether policies change the graph."""
        return self._structure is not None

    @property
    def best_restart(self) -> int:
        """The start they come from."""
        return self._kept_restart if self._keeps_earlier() else self._restart

    @property
    def l2(self) -> float:
        """The penalty of that start, as found or given."""
        return self._kept_l2 if self._keeps_earlier() else self._solver.l2

    @property
    def memory(self) -> Tree | None:
        """What the solver of that start would go on with in a warm start, if there is anything."""
        if self._keeps_earlier():
            return self._kept_memory
        return self._solver.state(stream=True) if self.choice.kind.warms else None

    @property
    def epochs(self) -> int:
        """Those of one start, at most."""
        return self._solver.epochs

    @property
    def penalties(self) -> FloatArray:
        """Those of that start, of the live parameters."""
        found = self._kept_penalties if self._keeps_earlier() else None
        return self._solver.penalties if found is None else found

    def rows(self) -> Iterator[HistoryRow]:
        """Train; the weights end as the best ones, whether this runs to its end or `stop` ends it."""
        while not self.finished:
            if self.mesh.topology is not self._topology or self.mesh.ticks != self._ticks:
                raise MeshError("the mesh got another graph or other ticks during training; start again")
            there_is_time = not self._out_of_time()
            if there_is_time:
                self.history.append(self._advance())
                self._mark = self._marked()
            if not self.finished and self._out_of_time():
                # whoever has more time goes on from this row
                self.stop(f"stopped: {self.settings.max_seconds:g} seconds are used up", to_go_on=True)
            if there_is_time:
                yield self.history[-1]

    def _out_of_time(self) -> bool:
        return self.settings.max_seconds is not None and self.seconds >= self.settings.max_seconds

    def fall_at_end(self) -> float:
        """How much the loss fell an epoch where the start that is kept ran out of epochs; 0 if it had come to rest.

        It had if its rate had come down to 0, or if the loss fell by no more than `tol` an epoch.
        """
        settings = self.settings
        rows = [row for row in self.history if row.restart == self.best_restart and not math.isnan(row.loss)]
        at_rest = self.choice.kind.scheduled and settings.schedule != "constant"
        if at_rest or settings.tol == 0.0 or self._structure is not None:
            return 0.0
        if len(rows) < 2 or rows[-1].epoch < self.epochs:
            return 0.0
        # the mean of some rows against that of those before: the loss of mini-batches goes up and down
        width = min(AT_END, len(rows) // 2)
        before, last = rows[-2 * width : -width], rows[-width:]
        fell = sum(row.loss for row in before) / width - sum(row.loss for row in last) / width
        fall = fell / (last[-1].epoch - before[-1].epoch)
        return fall if fall > settings.tol else 0.0

    def _advance(self) -> HistoryRow:
        """One row, and all that follows from it."""
        began = time.perf_counter()
        if self._searches:
            self._words = self._search()
        if self._ended:
            self._next_start()
        solver, settings = self._solver, self.settings
        if solver.lands:
            self.mesh.parameters[:] = self._best
        progress = solver.advance(solver.epochs - solver.epoch)
        held_out, accuracy = math.nan, self.samples.accuracy(progress.correct)
        if self.validation is not None:
            held_out, correct = self.validation.evaluate(self.mesh, settings.n_threads)
            accuracy = self.validation.accuracy(correct)
        value = progress.loss if self.validation is None else held_out
        if self.score is not None:
            held_out = self.score()
            value = -held_out
        note, stopped = (progress.note, False) if progress.note else self._judge(value, progress)
        note, restart = "; ".join(filter(None, (self._words, note))), self._restart
        self._words = ""
        if self._structure is not None:
            note = "; ".join([note] * bool(note) + self._edit(self._structure, progress.loss))
        if solver.epoch >= solver.epochs or stopped:
            self._ran_out, self._last = not stopped, self.mesh.values.copy()
            self._end_start()
            for unmet in () if self._structure is None else self._structure.unmet(solver.epoch):
                warnings.warn(unmet, UserWarning, stacklevel=4)
        self.seconds += time.perf_counter() - began
        return HistoryRow(
            epoch=solver.epoch,
            loss=progress.loss,
            validation=held_out,
            accuracy=accuracy if self.classifies else math.nan,
            gradient_norm=progress.gradient_norm,
            learning_rate=progress.rate,
            seconds=self.seconds,
            edges=self.mesh.topology.n_edges,
            restart=restart,
            note=note,
        )

    def _search(self) -> str:
        """Find the penalty and the solver by trying; what was found, in words."""
        self._searches = False
        seed = int(np.random.default_rng([*self._entropy, 6]).integers(2**63))
        found = search(
            self.mesh, self.samples, self.settings, self.choice.kind, self.choice.rival, seed, self.validation
        )
        if found is None:
            return ""
        self._take(found.kind, found.l2, f"{self.choice.reason}; {found.words}")
        return found.words

    def _take(self, kind: type[Solver], l2: float | str, reason: str) -> None:
        """Go on with what was found."""
        self.choice = Choice(kind, reason)
        self.settings = replace(self.settings, l2=l2)
        self._solver = self._begin()

    def _edit(self, structure: Structure, loss: float) -> list[str]:
        """Let the graph change; what was done."""
        solver = self._solver
        change, words = structure.edit(solver.epoch, loss)
        if change is not None:
            solver.rewire(change)
            self._topology = self.mesh.topology
            # what was best belongs to another graph
            self._best, self._best_value = self.mesh.parameters.copy(), math.inf
            self._plateau_value, self._best_epoch, self._fallen = math.inf, solver.epoch, 0.0
        return words

    def _judge(self, value: float, progress: Progress) -> tuple[str, bool]:
        """Remember the best weights; what there is to say, and whether this start ends here."""
        epoch, settings, finished = self._solver.epoch, self.settings, progress.finished
        if value < self._best_value or (self.validation is None and self.choice.kind.last_is_best):
            self._best_value = value
            self._best = self.mesh.parameters.copy()
        if self.validation is None and progress.fell is not None:
            value = self._fallen = self._fallen - progress.fell
        if value < self._plateau_value - settings.tol:
            self._plateau_value, self._best_epoch = value, epoch
        if settings.tol == 0.0 or (self._structure is not None and self._structure.busy(epoch)):
            return "", False  # asked to go on, or the graph is not what it is to be yet
        patience = settings.patience
        if settings.max_epochs == "auto" and not self.choice.kind.last_is_best:  # epochs of few samples are short
            patience = max(patience, self._solver.epochs // 4)
        if not finished and not self._solver.landed and epoch - self._best_epoch >= patience:
            which = "loss fell" if self.validation is None else "validation loss fell"
            which = which if self.score is None else "score of the held-out samples rose"
            finished = f"the {which} by less than {settings.tol:g} in {patience} epochs"
            if (left := self._solver.land(finished)) > 0:
                return f"{finished}: the rate is brought down over {left} epochs", False
        return f"stopped: {finished}" if finished else "", bool(finished)

    def _end_start(self) -> None:
        """Keep the weights of the start that has ended, if they are the best so far.

        The next one begins with the next row: whoever looks at the mesh after this one sees the weights it is about.
        """
        if self._kept is None or self._best_value < self._kept_value:
            self._kept, self._kept_value = self._best.copy(), self._best_value
            self._kept_restart, self._kept_l2 = self._restart, self._solver.l2
            self._kept_memory = self._solver.state(stream=True) if self.choice.kind.warms else None
            self._kept_penalties = self._solver.penalties.copy()
        if self._restart + 1 < self.settings.n_restarts:
            self._ended = True
        else:
            self.finished = True
            self.mesh.parameters[:] = self._kept

    def _next_start(self) -> None:
        self._ended = False
        self._restart += 1
        weights = self.mesh.draw_weights(self._rng)
        self.mesh.weights = weights if self._drawn is None else self._drawn(self.mesh, weights)
        self._solver = self._begin()

    def stop(self, reason: str, to_go_on: bool = False) -> None:
        """End here, with the best weights so far; a state `to_go_on` from stays that after the last whole row."""
        if not self.finished:
            self.finished = True
            self.mesh.parameters[:] = self.best_parameters
        if len(self.history):
            last = self.history[-1]
            self.history[-1] = last._replace(note=f"{last.note}; {reason}" if last.note else reason)
        if not to_go_on:
            self._mark = self._marked()

    # -- taking up again -----------------------------------------------------------------------------------------

    def _marked(self) -> tuple[Tree, int, list[HistoryRow]]:
        """Where training stands between two rows. Arrays that are replaced, not written to, need no copy."""
        tree = {
            "graph": self._graph,
            "solver": self._solver.state(),
            "restart": self._restart,
            "finished": self.finished,
            "ended": self._ended,
            "epochs": self.epochs,
            "seconds": self.seconds,
            "random": self._rng.bit_generator.state,
            "numbers": {name: getattr(self, f"_{name}") for name in _NUMBERS},
            "weights": self.mesh.values.copy(),
            "best": self._best,
            "kept": self._kept,
            "kept_memory": self._kept_memory,
            "ran_out": self._ran_out,
            "last": self._last if self.finished else None,
            "kept_penalties": self._kept_penalties,
            "structure": None if self._structure is None else self._structure.state(),
            "words": self._words,
            "found": None if self._searches else [self.choice.solver, self.settings.l2, self.choice.reason],
        }
        return tree, len(self.history), self.history.data[-1:]

    def state(self) -> Tree:
        """Everything needed to go on from after the last whole row."""
        tree, count, last = self._mark
        rows = self.history.data[: max(count - 1, 0)] + last  # stopping adds to the note of the last one
        return tree | {"history": History(rows).to_tree()}

    def restore(self, state: Tree) -> None:
        """Go on from a state of a trainer made with the same mesh, samples and settings, but perhaps more epochs."""
        if state["graph"] != self._graph:
            raise MeshError("the checkpoint was made with another graph; does topology() draw random edges?")
        if self._structure is not None:
            self._structure.restore(state["structure"])
            self._topology = self.mesh.topology
            self._solver = self._begin()
        if "found" not in state:  # files of 0.1, which tried nothing
            self._searches = False
        elif state["found"] is not None:
            name, l2, reason = state["found"]
            self._searches = False
            self._take(solver_named(name), replace(self.settings, l2=l2).l2, str(reason))
        self._words = str(state.get("words", ""))
        self.history = History.from_tree(state["history"])
        count = self.mesh.n_parameters
        self._best = as_weights(state["best"], count, self.mesh.dtype)
        self._kept = None if state["kept"] is None else as_weights(state["kept"], count, self.mesh.dtype)
        self._kept_memory = state.get("kept_memory")
        if self._kept_memory is not None:
            self._kept_memory = self.choice.kind.check_stream(self._kept_memory, self.mesh)
        kept = state.get("kept_penalties")  # files of 0.1 have none: those of the last start do for them
        if kept is not None:
            self._kept_penalties = as_weights(kept, len(self.mesh.live_parameters()), np.dtype(np.float64), "penalty")
        self._restart = whole_number("restart", state["restart"], least=0, most=self.settings.n_restarts)
        self.finished = switch("finished", state["finished"])
        self._ended = switch("ended", state["ended"])
        self.seconds = any_number("seconds", state["seconds"])
        for name in _NUMBERS:
            setattr(self, f"_{name}", any_number(name, state["numbers"][name]))
        self._kept_restart = int(self._kept_restart)
        self._solver.restore(state["solver"])
        self.mesh.values[:] = as_weights(state["weights"], len(self.mesh.values), self.mesh.dtype)
        self._rng.bit_generator.state = state["random"]
        self._ran_out, self._last = switch("ran_out", state.get("ran_out", False)), self.mesh.values.copy()
        if self._ran_out and self.finished:
            self._last = as_weights(state["last"], len(self.mesh.values), self.mesh.dtype)
            if self._solver.epoch < self.epochs:
                self._reopen()
        self._mark = self._marked()

    def _reopen(self) -> None:
        """Go on after what was the last epoch, from the last weights, which need not be the best."""
        self.finished, self._kept, self._kept_value = False, None, math.inf
        self._kept_restart, self._kept_l2, self._kept_memory, self._kept_penalties = 0, 0.0, None, None
        self.mesh.values[:] = self._last
