"""`Ranges`: statistics of the training rows for quantisation, kept by fitted models instead of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arrays import Array
from meshnn.errors import FileError
from meshnn.export.blueprint import Blueprint


@dataclass(frozen=True)
class Ranges:
    """Ranges of encoded features before scaling, and of neuron states, on training rows."""

    low: Array  # of the features, (n_inputs,)
    high: Array
    whole: bool  # whether all features are integers
    mean: Array  # of the states, (n_neurons,); the states of inputs are the scaled features
    variance: Array
    largest: Array  # absolute value of the states

    @staticmethod
    def rows(X: Any, most: int = 1000) -> Array:
        """Return a copy of up to `most` training rows for `of`: evenly spaced rows, or the first steps of sequences."""
        if hasattr(X, "offsets"):  # sequences of different lengths
            return np.array(X.data[:most], np.float64)
        part = X[:: max(1, X.shape[0] // most)][:most]
        return np.array(part.toarray() if hasattr(part, "toarray") else part, np.float64)

    @classmethod
    def of(cls, blueprint: Blueprint, X: Any, most: int = 200) -> Ranges | None:
        """Run the net on up to `most` encoded training rows; a stateful net takes them as the steps of a sequence.

        Return None if there is no row, if a number is not finite, or if the net is too large for a device that needs
        integers.
        """
        from meshnn.export.c.layout import Layout
        from meshnn.export.c.nets import scaled, settled_states

        rows = np.asarray(X, np.float64)
        ticks = blueprint.ticks if blueprint.timing is None else blueprint.timing.per_step
        if not len(rows) or not np.isfinite(rows).all() or ticks * blueprint.n_neurons > 2**17:
            return None
        layout = Layout(blueprint, padded=False, size=4)
        run = rows[:: 1 if blueprint.timing else max(1, len(rows) // most)][:most]
        with np.errstate(all="ignore"):
            slots = settled_states(layout, scaled(blueprint, run))
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
        """Return the ranges stored in a file after checks of types, shapes and signs."""
        sizes = {"low": n_inputs, "high": n_inputs, "mean": n_neurons, "variance": n_neurons, "largest": n_neurons}
        found = cls(whole=tree["whole"], **{name: tree[name] for name in sizes})
        for name, count in sizes.items():
            values = getattr(found, name)
            if not isinstance(values, np.ndarray) or values.shape != (count,) or values.dtype != np.float64:
                raise FileError(f"ranges of the training rows: {name!r} must be {count} float64 numbers")
            if not np.isfinite(values).all() or (name in ("variance", "largest") and (values < 0).any()):
                raise FileError(f"ranges of the training rows: {name!r} has negative or non-finite numbers")
        if type(found.whole) is not bool or (found.low > found.high).any():
            raise FileError("ranges of the training rows: 'low' exceeds 'high', or 'whole' is not true or false")
        return found
