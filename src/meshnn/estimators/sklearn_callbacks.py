"""Callbacks of scikit-learn (`set_callbacks`, since 1.9) in a fit: each row of the history is a task."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from meshnn.mesh import Mesh
from meshnn.training.callbacks import Callback
from meshnn.training.history import HistoryRow

__all__ = ["SklearnCallbacks"]


class SklearnCallbacks(Callback):
    """Tells scikit-learn's callbacks about a fit.

    Parameters
    ----------
    model : BaseMesh
    n_rows : int
        Rows of the history, at most.
    X, y
        What `fit` was given.
    """

    reason = "stopped by a callback of scikit-learn"

    def __init__(self, model: Any, n_rows: int, X: Any, y: Any) -> None:
        self._model, self._context = model, model._init_callback_context(max_subtasks=n_rows)
        self._left = n_rows
        self._facts = {"estimator": model, "X": X, "y": y}

    def on_fit_begin(self) -> None:
        """Begin the task of the whole fit."""
        self._context.call_on_fit_task_begin(**self._facts)

    def on_epoch_end(self, row: HistoryRow, mesh: Mesh) -> bool:
        """Begin and end the task of a row; return whether a callback wants to stop."""
        if self._left == 0:
            return False
        self._left -= 1
        task = self._context.subcontext(task_name="epoch")
        task.call_on_fit_task_begin(**self._facts)
        return bool(task.call_on_fit_task_end(**self._facts, reconstruction_attributes=self._fitted))

    def on_fit_end(self) -> None:
        """End the task of the whole fit."""
        self._context.call_on_fit_task_end(**self._facts, reconstruction_attributes=self._fitted)

    def _fitted(self) -> dict[str, Any]:
        """Return what an estimator needs to predict as this one would now; training goes on with its own mesh."""
        return {"mesh_": deepcopy(self._model.mesh_)}
