"""Quantisation: scales of rows and units of neurons from training data, and joint rounding of weights.

Rounding each weight separately is not optimal, because the error of the sum is relevant. With C the covariance of the
states that a row reads, the variance of this error is (r wq - W)' C (r wq - W). Several scales r are tried, from the
largest weight down; then single weights are changed as long as this reduces the variance. The mean of the remaining
error is added to the bias. Without samples, C is diagonal, with the variances that the model stores (`Ranges`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.c.layout import Layout
from meshnn.export.c.nets import TABLES, Coding, IntegerNet, settled_states, table_of
from meshnn.export.ranges import Ranges


class _Seen(NamedTuple):
    """States on training data, by slot: samples, or only mean, variance and the largest absolute value."""

    largest: Array
    mean: Array
    variance: Array
    states: Array | None = None  # (samples and ticks, n_slots)

    def moments(self, slots: IntArray) -> tuple[Array, Array]:
        """Return the mean and covariance of some slots."""
        if self.states is None:
            return self.mean[slots], np.diag(self.variance[slots])
        seen = self.states[:, slots]
        mean = seen.mean(axis=0)
        return mean, (seen - mean).T @ (seen - mean) / max(len(seen), 1)


class Quantiser:
    """Creates integer nets of 8 or 16 bits for one graph.

    X are encoded training samples (n, n_inputs), or the steps of a sequence for a stateful net; without them,
    `blueprint.ranges` is used.
    """

    def __init__(self, blueprint: Blueprint, X: Array | None, bits: int) -> None:
        self.blueprint, self.bits, self.X = blueprint, bits, X
        self.layout = Layout(blueprint, padded=True, size=bits // 8)
        if X is None:
            if blueprint.ranges is None:
                raise ExportError(
                    f"int{bits} needs the ranges of features and states, which this model does not keep; pass X=, some "
                    "hundred training samples, or fit a MeshClassifier or MeshRegressor, which store them"
                )
            self.coding = Coding.of(blueprint, blueprint.ranges, bits)
            return
        X = np.asarray(X, np.float64)
        # more samples add no information
        self.X = X[:: 1 if blueprint.timing is not None else max(1, len(X) // 1000)][:2000]
        finite = np.where(np.isfinite(X), X, 0.0 if blueprint.x_mean is None else blueprint.x_mean)
        whole, none = bool(np.isfinite(X).all() and np.array_equal(X, np.rint(X))), np.zeros(0)
        self.coding = Coding.of(blueprint, Ranges(finite.min(0), finite.max(0), whole, none, none, none), bits)

    def __call__(self, weights: Array | None = None) -> IntegerNet:
        """Return the integer net with these weights, or those of the blueprint."""
        blueprint = self.blueprint if weights is None else replace(self.blueprint, weights=weights)
        layout = self.layout if weights is None else Layout(blueprint, padded=True, size=self.bits // 8)
        return _Rounding(self, layout).net()

    def seen(self, layout: Layout) -> _Seen:
        """Return the states of the float net on the samples as represented by the coding."""
        ranges = self.blueprint.ranges
        if self.X is None and ranges is not None:
            neurons = np.concatenate([np.arange(self.blueprint.n_inputs), layout.neurons])
            # other rows may have larger states; 16 bits have precision to spare
            margin = 1.2 if self.bits == 8 else 4.0
            return _Seen(margin * ranges.largest[neurons], ranges.mean[neurons], ranges.variance[neurons])
        found = settled_states(layout, self.coding.unit * self.coding(self.X) + self.coding.offset)
        return _Seen(np.abs(found).max(axis=0), found.mean(axis=0), np.zeros(0), found)


class _Rounding:
    """The weights of all rows of a layout as integers."""

    largest_sum = 2.0**31 - 2**16  # limit of integer sums
    largest_shift = 24  # limit of the shift of a sum

    def __init__(self, given: Quantiser, layout: Layout) -> None:
        self.layout, self.blueprint, self.coding, self.bits = layout, layout.blueprint, given.coding, given.bits
        self.high = 2 ** (given.bits - 1) - 1
        self.raw = layout.sums - layout.read  # rows that need no unit
        self.seen = given.seen(layout)
        n = self.blueprint.n_inputs
        self.unit = np.full(layout.n_slots, 2.0 ** -(self.bits - 1))
        self.unit[:n] = self.coding.unit
        self.offset = np.zeros(layout.n_slots)
        self.offset[:n] = self.coding.offset
        self.size = np.full(layout.n_slots, self.high + 1.0)
        self.size[:n] = max(-self.coding.least, self.coding.most)
        self.kinds = [layout.block_of(row).activation for row in range(layout.n_rows)]
        self.unit_bits = self._choose_units()

    def _choose_units(self) -> dict[str, int]:
        """Choose units of neurons so that the largest state fits; return the fractional bits of softplus and elu.

        For cyclic nets, units must be known before the rows that read them are rounded.
        """
        found: dict[str, int] = {}
        largest = self.seen.largest[self.blueprint.n_inputs :]
        for name in {"softplus", "elu"} & set(self.kinds):
            most = max(float(largest[[kind == name for kind in self.kinds]].max()), 1e-6)
            found[name] = max(min(math.floor(math.log2(self.high / most)), table_of(name, self.bits).fraction), 0)
        for row, kind in enumerate(self.kinds):
            if kind not in TABLES and row not in self.raw:
                unit = (float(largest[row]) or 1.0) / self.high
                self.unit[self.blueprint.n_inputs + row] = min(unit, self._largest_unit(row))
            elif kind in found:
                self.unit[self.blueprint.n_inputs + row] = 2.0 ** -found[kind]
        if self.blueprint.link == "softmax":  # outputs that are compared need the same unit
            slots = [slot for slot in self.layout.outputs.tolist() if slot >= 0]
            self.unit[slots] = self.unit[slots].max(initial=0.0)
        return found

    def _largest_unit(self, row: int) -> float:
        """Return the largest unit of a piecewise linear row: the largest state of hardtanh must not exceed 1."""
        return 1.0 / self.high if self.kinds[row] == "hardtanh" else math.inf

    def net(self) -> IntegerNet:
        layout, n, rows, sums = self.layout, self.blueprint.n_inputs, self.layout.n_rows, self.layout.sums
        weights: list[IntArray] = [np.zeros(0, np.int64)] * rows
        bias, shift, scale = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.ones(rows)
        common: float | None = None
        for row in sorted(range(rows), key=lambda row: row in sums):  # outputs last, when all units are known
            if row in sums and common is None and self.blueprint.link == "softmax":
                common = self._common_scale()
            if row in sums and common is not None:
                scale[row] = common
                shift[row] = 0 if row in self.raw else round(math.log2(self.unit[n + row] / common))
            elif row in self.raw:
                scale[row] = self._best([row], self._free([row]))
            elif self.kinds[row] in TABLES:
                one = 2.0 ** -table_of(self.kinds[row], self.bits).fraction
                one *= 2.0 * np.pi if self.kinds[row] == "sin" else 1.0
                scale[row] = self._best([row], self._powers(row, one))
                shift[row] = round(math.log2(one / scale[row]))
            else:
                scale[row], shift[row] = self._line(row)
            weights[row], bias[row] = self._rounded(row, scale[row], int(shift[row]), thorough=True)[:2]
        unit, slots = self.unit.copy(), layout.outputs
        for row in sums:
            unit[n + row] = scale[row]
        out_scale = np.where(slots >= 0, unit[slots], 0.0)
        step = np.zeros(len(self.blueprint.src))
        for row in range(rows):
            step[layout.edges[row]] = scale[row] / self.unit[layout.sources[row]]
        return IntegerNet(layout, self.coding, self.bits, weights, bias, shift, out_scale, self.unit_bits, step)

    # -- scales --------------------------------------------------------------------------------------------------

    def _row(self, row: int) -> tuple[IntArray, Array, float]:
        """Return the slots that a row reads, its weights in units of these, and its bias."""
        slots, w = self.layout.sources[row], self.layout.row_weights[row]
        return slots, w * self.unit[slots], float(self.layout.bias[row] + w @ self.offset[slots])

    def _largest_scale(self, row: int) -> float:
        """Return the scale at which the largest weight is the largest integer, or at which the sums still fit."""
        slots, W, b = self._row(row)
        room = self.largest_sum - 0.5 * float(self.size[slots].sum())  # rounding adds at most a half per weight
        if room <= self.largest_sum / 2:
            raise ExportError(
                f"a neuron reads {len(slots)} states with {self.bits} bits, whose sum could exceed 32 bits; "
                'use dtype="int8"'
            )
        # the contribution of clipping to the bias
        means = np.abs(self.seen.mean[slots] - self.offset[slots]) / self.unit[slots]
        fits = (float(np.abs(W) @ self.size[slots]) + abs(b) + float(np.abs(W) @ means)) / room
        return float(max(float(np.abs(W).max(initial=0.0)) / self.high, fits, 1e-30))

    def _least_scale(self, row: int) -> float:
        """Return the scale below which sums could overflow even if all weights are clipped."""
        if self.bits == 16:
            return self._largest_scale(row)
        return max((abs(self._row(row)[2]) + 1e-30) / self.largest_sum * 4, 1e-30)

    def _free(self, rows: list[int]) -> Array:
        """Return scales from the largest down, in steps of a quarter power of 2."""
        top, least = (max(map(scale, rows)) for scale in (self._largest_scale, self._least_scale))
        return np.maximum(top * 2.0 ** -np.arange(0.0, 4.01, 0.25), least)

    def _powers(self, row: int, one: float) -> Array:
        """Return powers of 2, times `one`, near the largest scale."""
        top = math.ceil(math.log2(self._largest_scale(row) / one))
        least = max(math.ceil(math.log2(self._least_scale(row) / one)), -self.largest_shift)
        return np.asarray(one * 2.0 ** np.maximum(np.arange(top, top - 5.0, -1.0), least))

    def _line(self, row: int) -> tuple[float, int]:
        """Return scale and shift of a neuron whose unit is scale * 2^shift; the unit may be increased."""
        slot, best = self.blueprint.n_inputs + row, (np.inf, 1.0, 0, 1.0)
        free = self.layout.once and slot not in self.layout.outputs
        for wide in (1.0, 1.2, 1.45, 1.75) if free else (1.0,):
            unit = min(self.unit[slot] * wide, self._largest_unit(row))
            for scale in np.unique(self._powers(row, unit)).tolist():
                error = self._rounded(row, scale, 0)[2] + unit**2 / 12
                if error < best[0]:
                    best = (error, scale, round(math.log2(unit / scale)), unit)
        self.unit[slot] = best[3]
        return best[1], best[2]

    def _best(self, rows: list[int], scales: Array) -> float:
        """Return the scale with the smallest error for some rows."""
        errors = [sum(self._rounded(row, float(scale), 0)[2] for row in rows) for scale in scales]
        return float(scales[int(np.argmin(errors))])

    def _common_scale(self) -> float:
        """Return one scale for all outputs that are compared, which preserves their order."""
        rows, read = sorted(self.layout.sums), sorted(self.layout.sums & self.layout.read)
        if not read:
            return self._best(rows, self._free(rows))
        one = float(self.unit[self.blueprint.n_inputs + read[0]])  # all have this unit
        return self._best(rows, np.sort(np.max([self._powers(row, one) for row in rows], axis=0))[::-1])

    # -- weights -------------------------------------------------------------------------------------------------

    def _rounded(self, row: int, scale: float, shift: int, thorough: bool = False) -> tuple[IntArray, int, float]:
        """Return integer weights, the bias including half a unit, and the variance of the error of the sum."""
        slots, W, b = self._row(row)
        mean, C = self.seen.moments(slots)
        mean, C = (mean - self.offset[slots]) / self.unit[slots], C / np.outer(self.unit[slots], self.unit[slots])
        C = C + np.eye(len(W)) * (1e-3 * np.trace(C) / max(len(W), 1) + 1e-12)
        wq = np.clip(np.rint(W / scale), -self.high, self.high)
        if thorough and len(W) <= 1500:  # more weights would take too long
            better = _descended(wq, W / scale, C, self.high)
            if np.abs(better) @ self.size[slots] <= max(float(np.abs(wq) @ self.size[slots]), self.largest_sum / 2):
                wq = better
        left = W - scale * wq
        bias = round((b + float(left @ mean)) / scale) + ((1 << shift) >> 1 if shift > 0 else 0)
        return wq.astype(np.int64), bias, float(left @ C @ left)


def _descended(wq: Array, want: Array, C: Array, high: int) -> Array:
    """Change single integer weights as long as this reduces (wq - want)' C (wq - want)."""
    wq, g = wq.copy(), C @ (wq - want)
    for _ in range(20):
        moved = False
        for i in range(len(wq)):
            step = np.rint(-g[i] / C[i, i])
            step = np.clip(wq[i] + step, -high, high) - wq[i]
            if step and step * (2 * g[i] + step * C[i, i]) < 0:
                wq[i] += step
                g += step * C[:, i]
                moved = True
        if not moved:
            break
    return wq
