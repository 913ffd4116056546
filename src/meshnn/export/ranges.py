"""`Ranges`: what quantisation needs to know about the training rows, kept by fitted models instead of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import FileError
from meshnn.export.blueprint import Blueprint
from meshnn.export.limits import LIMITS

__all__ = ["Ranges"]

_ARRAYS = ("low", "high", "mean", "variance", "largest")


@dataclass(frozen=True)
class Ranges:
    """Ranges of features and of neuron states on training rows.

    Attributes
    ----------
    low, high : arrays (n_inputs,)
        The smallest and largest value of each encoded feature, before scaling.
    whole : bool
        Whether all features are whole numbers.
    mean, variance, largest : arrays (n_neurons,)
        Of the states of each neuron: mean, variance and largest absolute value. States of inputs are scaled features.
    """

    low: Array
    high: Array
    whole: bool
    mean: Array
    variance: Array
    largest: Array

    @staticmethod
    def rows(X: Any) -> Array:
        """Return a copy of some training rows for `of`: every so many of a matrix, the first steps of sequences."""
        if hasattr(X, "offsets"):  # sequences of different lengths
            return np.array(X.data[: LIMITS.rows], np.float64)
        part = X[:: max(1, X.shape[0] // LIMITS.rows)][: LIMITS.rows]
        return np.array(part.toarray() if hasattr(part, "toarray") else part, np.float64)

    @classmethod
    def of(cls, blueprint: Blueprint, X: Any) -> Ranges | None:
        """Run the net on encoded training rows (n, n_inputs), or on the steps of a sequence if it lives in time.

        None if there is no row, numbers are not finite, or the net is too large for a device that needs integers.
        """
        from meshnn.export.c.layout import Layout
        from meshnn.export.c.reference import FloatNet, scaled

        rows = np.asarray(X, np.float64)
        ticks = blueprint.ticks if blueprint.timing is None else blueprint.timing.per_step
        if not len(rows) or not np.isfinite(rows).all() or ticks * blueprint.n_neurons > LIMITS.range_states:
            return None
        layout = Layout(blueprint, padded=False, size=4)
        run = rows[:: 1 if blueprint.timing else max(1, len(rows) // LIMITS.range_rows)][: LIMITS.range_rows]
        with np.errstate(all="ignore"):
            seen = FloatNet(layout).states(scaled(blueprint, run))
            slots = np.concatenate(seen[-LIMITS.ticks :] if blueprint.timing is None else seen)
            states = np.zeros((len(slots), blueprint.n_neurons))
            used = layout.slot >= 0
            states[:, used] = slots[:, layout.slot[used]]
            found = [states.mean(axis=0), states.var(axis=0), np.abs(states).max(axis=0)]
        if not all(np.isfinite(part).all() for part in found):
            return None
        return cls(rows.min(axis=0), rows.max(axis=0), np.array_equal(rows, np.rint(rows)), *found)

    def to_tree(self) -> dict[str, Any]:
        """Return plain values and arrays for a file."""
        return dict(vars(self))

    @classmethod
    def from_tree(cls, tree: Any, n_inputs: int, n_neurons: int) -> Ranges:
        """Return the ranges that a file holds, after checks of types, shapes and signs."""
        found = cls(**{name: tree[name] for name in (*_ARRAYS, "whole")})
        for name in _ARRAYS:
            values, count = getattr(found, name), n_inputs if name in ("low", "high") else n_neurons
            if not isinstance(values, np.ndarray) or values.shape != (count,) or values.dtype != np.float64:
                raise FileError(f"its {name} of the training rows is not {count} numbers")
            if not np.isfinite(values).all() or (name in ("variance", "largest") and (values < 0).any()):
                raise FileError(f"its {name} of the training rows holds numbers that cannot be")
        if type(found.whole) is not bool or (found.low > found.high).any():
            raise FileError("its ranges of the training rows contradict each other")
        return found
