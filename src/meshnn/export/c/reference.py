"""A net in the layout of a C header, run in NumPy: one walk over its rows for floats and whole numbers.

`FloatNet` computes in float64 what a header in floats comes near to; `IntegerNet` (integer.py) has the bits of C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from meshnn.arrays import Array
from meshnn.export.blueprint import Blueprint
from meshnn.export.c.layout import Layout

__all__ = ["FloatNet", "ReferenceNet", "float_outputs", "scaled"]

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda t: t,
    "relu": lambda t: np.maximum(t, 0.0),
    "leaky_relu": lambda t: np.where(t < 0, 0.01 * t, t),
    "elu": lambda t: np.where(t < 0, np.expm1(np.minimum(t, 0.0)), t),
    "softplus": lambda t: np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t))),
    "sigmoid": lambda t: 0.5 * (1.0 + np.tanh(0.5 * t)),
    "tanh": np.tanh,
    "sin": np.sin,
    "gauss": lambda t: np.exp(-np.minimum(t * t, 700.0)),
}


class ReferenceNet:
    """The rows of a layout with weights of some number type.

    Parameters
    ----------
    layout : Layout
    weights : sequence of arrays
        Per row, in the order of `layout.sources`.
    bias : array (n_rows,)
    """

    def __init__(self, layout: Layout, weights: Sequence[Array], bias: Array) -> None:
        self.layout, self.blueprint, self.weights, self.bias = layout, layout.blueprint, weights, bias
        self.unshifted: set[int] = set()  # rows whose sums are outputs

    def activate(self, row: int, total: Array) -> Array:
        """Return the states of a row from its weighted sums."""
        raise NotImplementedError

    def tick(self, s: Array, seen: list[Array] | None = None) -> dict[int, Array]:
        """Compute all stages in place, with a copy of each state in `seen`; return the sums that are outputs."""
        first, sums = self.blueprint.n_inputs, {}
        for stage in self.layout.stages:
            for _ in range(stage.times):
                after = s if self.layout.once else s.copy()
                for row in (row for a, b in stage.rows for row in range(a, b)):
                    total = s[:, self.layout.sources[row]] @ self.weights[row] + self.bias[row]
                    if row in self.unshifted:
                        sums[row] = total
                    if row not in self.unshifted or row in self.layout.read:
                        after[:, first + row] = self.activate(row, total)
                s[:] = after
                if seen is not None:
                    seen.append(s.copy())
        return sums

    def states(self, Z: Array) -> list[Array]:
        """Return the states (n, n_slots) of all samples after each tick; of a net in time, of each step in turn."""
        timing, seen = self.blueprint.timing, list[Array]()
        s = np.zeros((1 if timing else len(Z), self.layout.n_slots), Z.dtype)
        for z in Z if timing else [Z]:
            s[:, : self.blueprint.n_inputs] = z
            for _ in range(timing.per_step if timing else 1):
                self.tick(s, seen)
        return seen

    def outputs(self, Z: Array) -> Array:
        """Return the outputs (n, n_outputs) of scaled features, or after each step of a net in time."""
        timing, n = self.blueprint.timing, self.blueprint.n_inputs
        s = np.zeros((1 if timing else len(Z), self.layout.n_slots), Z.dtype)
        if timing is None:
            s[:, :n] = Z
            return self._read(s, self.tick(s))
        found = np.zeros((len(Z), self.blueprint.n_outputs), Z.dtype)
        total, ticks, mean = np.zeros(self.blueprint.n_outputs, Z.dtype), 0, timing.readout == "mean"
        for t, z in enumerate(Z):
            s[0, :n] = z
            for _ in range(timing.per_step):
                ticks += 1
                sums = self.tick(s)
                if mean and ticks > timing.delay and (ticks - timing.delay) % timing.per_step == 0:
                    total = total + self._read(s, sums)[0]
            later, more = s.copy(), total
            for k in range(ticks + 1, ticks + timing.delay + 1):
                sums = self.tick(later)
                if mean and k > timing.delay and (k - timing.delay) % timing.per_step == 0:
                    more = more + self._read(later, sums)[0]
            found[t] = more / (t + 1) if mean else self._read(later, sums)[0]
        return found

    def _read(self, s: Array, sums: dict[int, Array]) -> Array:
        found = np.zeros((len(s), self.blueprint.n_outputs), s.dtype)
        for o, slot in enumerate(self.layout.outputs.tolist()):
            if slot >= 0:
                found[:, o] = sums.get(slot - self.blueprint.n_inputs, s[:, slot])
        return found


class FloatNet(ReferenceNet):
    """A layout in float64."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, layout.row_weights, layout.bias)

    def activate(self, row: int, total: Array) -> Array:
        """Return the activation of the sums."""
        return _ACTIVATIONS[self.layout.block_of(row).activation](total)


def scaled(blueprint: Blueprint, X: Array) -> Array:
    """Return encoded features as the net takes them; in a stream, features that are not finite count as their mean."""
    Z = np.asarray(X, np.float64)
    if blueprint.x_mean is not None and blueprint.x_scale is not None:
        Z = (Z - blueprint.x_mean) / blueprint.x_scale
    if np.isfinite(blueprint.x_cut):
        Z = np.clip(np.where(np.isfinite(X), Z, 0.0), -blueprint.x_cut, blueprint.x_cut)
    return Z


def float_outputs(blueprint: Blueprint, X: Array) -> Array:
    """Return the outputs (n, n_outputs) in float64 of encoded features, or after each step of a net in time."""
    return FloatNet(Layout(blueprint, padded=False, size=4)).outputs(scaled(blueprint, X))
