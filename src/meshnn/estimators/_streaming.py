"""Samples that come a few at a time: `partial_fit`."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from meshnn.estimators._building import BuildsNets, seed_of
from meshnn.storage import Tree
from meshnn.training import History, HistoryRow
from meshnn.training.solvers import SOLVERS, streaming_solver

__all__ = ["Streams", "streams"]


def streams(estimator: Any) -> bool:
    for kind in SOLVERS:
        if kind.name == estimator.solver and not kind.streams:
            able = ", ".join(f'"{other.name}"' for other in SOLVERS if other.streams)
            raise AttributeError(f'partial_fit needs solver={able} or "auto": {kind.name} looks at all samples at once')
    return True


class Streams(BuildsNets):
    """A pass over some samples, from wherever the net is."""

    _solver_state: Tree | None  # what partial_fit remembers
    _stream_seed: int
    solver_: str

    def _pass_over(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Once through some samples, with a constant rate; what the optimiser remembers is kept from call to call."""
        settings = self._settings()
        first = not hasattr(self, "mesh_")
        X, targets, weight, n_outputs = self._checked(X, y, sample_weight, reset=first, first=False)
        kind = streaming_solver(settings.solver)
        settings = replace(settings, solver=kind.name, schedule="constant", max_epochs=1)
        if first:
            seeds = np.random.SeedSequence(seed_of(self.random_state)).generate_state(2)
            self._build(X, targets, weight, n_outputs, settings, int(seeds[0]), stream=True)
            self._stream_seed, self._solver_state = int(seeds[1]), None
            self.history_, self.n_iter_, self.best_restart_ = History(), 0, 0
        self._check_same_net(X.shape[1], n_outputs)
        rng = np.random.default_rng(self._stream_seed)
        stream = kind(self.mesh_, self._samples(X, targets, weight), settings, rng)
        if self._solver_state is not None and self.solver_ == kind.name:  # another one's memory means something else
            stream.restore(self._solver_state, stream=True)
        self.solver_, self.solver_reason_ = kind.name, "partial_fit takes first-order steps"
        began = time.perf_counter()
        before = self.history_[-1].seconds if len(self.history_) else 0.0
        progress = stream.advance(1)
        self._solver_state = stream.state(stream=True)
        self.l2_ = stream.l2
        self.n_iter_ += 1
        self.history_.append(
            HistoryRow(
                epoch=self.n_iter_,
                loss=progress.loss,
                validation=math.nan,
                accuracy=progress.hits if self._loss.classifies else math.nan,
                gradient_norm=progress.gradient_norm,
                learning_rate=progress.rate,
                seconds=before + time.perf_counter() - began,
                edges=self.mesh_.topology.n_edges,
                restart=self.best_restart_,
                note=progress.note,
            )
        )
