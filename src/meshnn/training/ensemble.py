"""`Ensemble`: the training of several nets, one after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import harmonic_mean

from meshnn.arguments import whole_number
from meshnn.mesh import Mesh
from meshnn.storage import Tree
from meshnn.training.history import History, HistoryRow
from meshnn.training.samples import Samples
from meshnn.training.settings import Settings
from meshnn.training.solvers import Choice
from meshnn.training.trainer import StartResult, Trainer

#: A member is left out if its log-likelihood is lower by this number in all samples, by its held-out loss. The mean of
#: members has less variance, but with many samples the variance is small, and the mean would only be a compromise.
BEHIND = 1000.0


class Ensemble:
    """Trains the members of an ensemble one after another, with the interface of a `Trainer`.

    All members search for penalty and solver first. At most `n_members` of those with the smallest held-out losses are
    trained. In the history, the starts of all members are numbered consecutively. `on_member` is called with the number
    of a member before its first row.
    """

    def __init__(self, trainers: list[Trainer], n_members: int, on_member: Callable[[int], None]) -> None:
        self.trainers, self.n_members, self.on_member = trainers, n_members, on_member
        self.number, self._stopped = 0, False
        self._cut: int | None = None  # the member that was stopped before its end

    @property
    def current(self) -> Trainer:
        """The trainer of the current member."""
        return self.trainers[self.number]

    @property
    def _losses(self) -> list[float] | None:
        """The held-out losses of all members in their searches, or None if some did not search."""
        losses = [each.searched_loss for each in self.trainers]
        return losses if all(math.isfinite(loss) and loss > 0 for loss in losses) else None

    @property
    def kept(self) -> list[int]:
        """The numbers of the members that are not left out."""
        if (losses := self._losses) is None:
            return list(range(self.n_members))
        # the log-likelihood of errors that are normally distributed is -log(error variance) / 2 per output
        half = 0.5 * self.trainers[0].mesh.topology.n_outputs
        costs = losses if self.samples.loss.likelihood else [half * math.log(loss) for loss in losses]
        kept = [k for k, cost in enumerate(costs) if (cost - min(costs)) * self.samples.count <= BEHIND]
        return sorted(sorted(kept, key=costs.__getitem__)[: self.n_members])

    @property
    def used(self) -> list[int]:
        """The numbers of the members that make up the model: those that are trained, or else the current one."""
        trained = [k for k in self.kept if self.trainers[k].finished and k != self._cut]
        return trained or [self.number]

    @property
    def history(self) -> History:
        """The rows of all members."""
        return History(self._in_all(k, row) for k, trainer in enumerate(self.trainers) for row in trainer.history)

    def _in_all(self, member: int, row: HistoryRow) -> HistoryRow:
        """Return a row of a member with the number of its start and the seconds in the whole training."""
        before = sum(each.history[-1].seconds for each in self.trainers[:member] if len(each.history))
        return row._replace(restart=row.restart + member * self.settings.n_restarts, seconds=row.seconds + before)

    def nets(self) -> list[Mesh]:
        """Return copies of the members of the model, with their best weights so far."""
        trainers = [self.trainers[k] for k in self.used]
        return [each.mesh.with_parameters(each.best.parameters) for each in trainers]

    def shares(self) -> list[float]:
        """Return the weight of each member of the model: the inverse of its held-out loss."""
        losses = self._losses
        inverse = [1.0 if losses is None else 1.0 / losses[k] for k in self.used]
        return [each / sum(inverse) for each in inverse]

    def held_out_loss(self) -> float:
        """Return the weighted mean of the held-out losses of the members, or NaN if some did not search."""
        losses = self._losses
        return math.nan if losses is None else harmonic_mean([losses[k] for k in self.used])

    def rows(self) -> Iterator[HistoryRow]:
        """Train and yield the rows; at the end, the members have their best weights."""
        if len(self.trainers) > 1 and self.settings.max_seconds is None:
            for each in self.trainers:
                each.search()
        for k in self.kept:
            if not (self._stopped or self.trainers[k].finished):
                self.number = k
                self.on_member(k)
                for row in self.current.rows():
                    yield self._in_all(k, row)

    def stop(self, reason: str, to_go_on: bool = False) -> None:
        """End training; members that have not begun are left out."""
        self._stopped, self._cut = True, None if self.current.finished else self.number
        self.current.stop(reason, to_go_on)

    @property
    def finished(self) -> bool:
        """Whether training is finished."""
        return self._stopped or all(self.trainers[k].finished for k in self.kept)

    @property
    def goes_on(self) -> bool:
        """Whether the recorded state is that of an unfinished run."""
        return any(self.trainers[k].goes_on for k in self.kept)

    def state(self) -> Tree:
        """Return the state after the last complete row, from which a run can resume."""
        members = [each.state() for each in self.trainers]
        return {"members": members, "number": self.number, "epochs": self.epochs, "finished": not self.goes_on}

    def restore(self, tree: Tree) -> None:
        """Resume from a state of an ensemble with the same arguments."""
        for trainer, state in zip(self.trainers, tree["members"], strict=True):
            trainer.restore(state)
        self.number = whole_number("number", tree["number"], least=0, most=len(self.trainers) - 1)
        self.on_member(self.number)

    def fall_at_end(self) -> float:
        """Return the largest decrease of the loss per epoch at the end of a member that ran out of epochs, else 0."""
        return max(self.trainers[k].fall_at_end() for k in self.used)

    def pulse_to(self, pulse: Callable[[int], None]) -> None:
        """Call a function with the number of samples done during long epochs."""
        for each in self.trainers:
            each.on_pulse = pulse

    # The first member that is kept stands for all.

    @property
    def _first(self) -> Trainer:
        return self.trainers[self.used[0]]

    @property
    def best(self) -> StartResult:
        """The best start of the first member."""
        found = self._first.best
        return replace(found, restart=found.restart + self.used[0] * self.settings.n_restarts)

    @property
    def choice(self) -> Choice:
        """The solver of the first member, with the reasons of all."""
        reasons = [each.choice.reason for each in self.trainers]
        for k in range(len(self.trainers)):
            if k not in self.kept:
                reasons[k] += ", not trained: its held-out loss is too large"
            elif self._stopped and k not in self.used:
                reasons[k] += ", not part of the model: training was stopped"
        numbered = [f"net {k + 1}: {reason}" for k, reason in enumerate(reasons)]
        return Choice(self._first.choice.solver, reasons[0] if len(reasons) == 1 else "; ".join(numbered))

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.current.settings

    @property
    def samples(self) -> Samples:
        """The training samples of the current member."""
        return self.current.samples

    @property
    def n_starts(self) -> int:
        """Number of starts of all members."""
        return len(self.trainers) * self.settings.n_restarts

    @property
    def epochs(self) -> int:
        """Maximum number of epochs per start."""
        return self.current.epochs

    @property
    def changes(self) -> bool:
        """Whether policies change the graph."""
        return self.current.changes
