"""From floats to whole numbers: scales of rows and units of neurons chosen on training data, weights rounded together.

Rounding each weight for itself is not the best: what counts is the error of the sum. With C the covariance of what a
row reads, (r wq - W)' C (r wq - W) is its variance; r is tried from the largest weight down, and then weights step by
step, each to where the others want it. The mean of the error that is left goes into the bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.c_layout import Layout
from meshnn.export.integer import LINES, Coding, IntegerNet, sum_rows, table_of

__all__ = ["Quantiser", "float_outputs"]

#: Samples that are looked at, ticks of nets that have cycles, and sums of a row that may occur.
SAMPLES, TICKS, LARGEST = 1000, 16, 2.0**31 - 2**16
#: Bits that sums are shifted by, at most.
FURTHEST = 24
#: Weights of a row beyond which they are rounded one by one.
MANY = 1500
#: Shares of the largest scale that are tried.
SHARES = 2.0 ** -np.arange(0.0, 4.01, 0.25)

_FLOAT: dict[str, Callable[[Array], Array]] = {
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


@dataclass
class _Seen:
    """What rows were seen to read and to give: mean and covariance of the states, the largest |state| of each slot."""

    states: Array  # (samples and ticks, n_slots)
    largest: Array

    def moments(self, slots: IntArray) -> tuple[Array, Array]:
        seen = self.states[:, slots]
        mean = seen.mean(axis=0)
        return mean, (seen - mean).T @ (seen - mean) / max(len(seen), 1)


class Quantiser:
    """Makes integer nets of one graph.

    Parameters
    ----------
    blueprint : Blueprint
    X : array (n, n_inputs)
        Training samples, or the steps of a sequence if the net lives in time; empty: features are taken to be normal.
    bits : 8 or 16
    """

    def __init__(self, blueprint: Blueprint, X: Array, bits: int) -> None:
        self.blueprint, self.bits = blueprint, bits
        self.layout = Layout(blueprint, padded=True, size=bits // 8)
        if not len(X):
            z = np.random.default_rng(0).standard_normal((SAMPLES, blueprint.n_inputs))
            X = z if blueprint.x_mean is None or blueprint.x_scale is None else z * blueprint.x_scale + blueprint.x_mean
            X = np.where(np.isfinite(X), X, 0.0)
        step = 1 if blueprint.timing is not None else max(1, len(X) // SAMPLES)
        self.X = np.asarray(X, np.float64)[::step][: 2 * SAMPLES]
        self.coding = Coding.learn(blueprint, np.asarray(X, np.float64), bits)

    def __call__(self, weights: Array | None = None) -> IntegerNet:
        """The net with these weights, or its own."""
        blueprint = self.blueprint if weights is None else self.blueprint.with_weights(weights)
        layout = self.layout if weights is None else Layout(blueprint, padded=True, size=self.bits // 8)
        return _Rounding(self, layout).net()


class _Rounding:
    def __init__(self, given: Quantiser, layout: Layout) -> None:
        self.layout, self.blueprint, self.coding, self.bits = layout, layout.blueprint, given.coding, given.bits
        self.high = 2 ** (given.bits - 1) - 1
        self.sums, self.read = sum_rows(layout)
        self.raw = self.sums - self.read  # no unit is asked of them
        self.seen = _watch(layout, given.coding, given.X)
        n = self.blueprint.n_inputs
        self.unit = np.full(layout.n_slots, 2.0 ** -(self.bits - 1))
        self.unit[:n] = self.coding.unit
        self.offset = np.zeros(layout.n_slots)
        self.offset[:n] = self.coding.offset
        self.size = np.full(layout.n_slots, self.high + 1.0)
        self.size[:n] = max(-self.coding.least, self.coding.most)
        self.unit_bits = self._shared_units()
        self.kinds = [layout.block_of(row).activation for row in range(layout.n_rows)]

    def _shared_units(self) -> dict[str, int]:
        """Of softplus and elu: bits behind the point, so that the largest state fits."""
        found: dict[str, int] = {}
        for block in self.layout.blocks:
            if block.activation in ("softplus", "elu"):
                rows = slice(self.blueprint.n_inputs + block.begin, self.blueprint.n_inputs + block.end)
                largest = max(float(self.seen.largest[rows].max(initial=0.0)), 1e-6)
                bits = min(math.floor(math.log2(self.high / largest)), table_of(block.activation, self.bits).fraction)
                found[block.activation] = min(bits, found.get(block.activation, bits))
        return {name: max(bits, 0) for name, bits in found.items()}

    def net(self) -> IntegerNet:
        layout, n = self.layout, self.blueprint.n_inputs
        rows = layout.n_rows
        weights: list[IntArray] = [np.zeros(0, np.int64)] * rows
        bias, shift, scale = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.ones(rows)
        for row in range(rows):  # units of cyclic nets must be known before the rows that read them
            if self.kinds[row] in LINES and row not in self.raw:
                self.unit[n + row] = (float(self.seen.largest[n + row]) or 1.0) / self.high
            elif self.kinds[row] in self.unit_bits:
                self.unit[n + row] = 2.0 ** -self.unit_bits[self.kinds[row]]
        self._share_units()
        common: dict[int, float] | None = None
        for row in sorted(range(rows), key=lambda row: row in self.sums):  # outputs when all units are known
            if row in self.sums:
                common = self._common_scale() if common is None else common
            if common is not None and row in common:
                scale[row] = common[row]
                shift[row] = 0 if row in self.raw else round(math.log2(self.unit[n + row] / scale[row]))
            elif row in self.raw:
                scale[row] = self._best(row, self._free(row))[0]
            elif self.kinds[row] in LINES:
                scale[row], shift[row] = self._line(row)
            else:
                table = table_of(self.kinds[row], self.bits)
                one = 2.0 * np.pi if self.kinds[row] == "sin" else 1.0
                scale[row] = self._best(row, self._powers(row, one * 2.0**-table.fraction))[0]
                shift[row] = round(math.log2(one * 2.0**-table.fraction / scale[row]))
            weights[row], bias[row] = self._rounded(row, scale[row], int(shift[row]), thorough=True)[:2]
        slots = layout.outputs
        out_scale = np.zeros(len(slots))
        for o, slot in enumerate(slots.tolist()):
            if slot >= 0:
                out_scale[o] = scale[slot - n] if slot - n in self.sums else self.unit[slot]
        step = np.zeros(len(self.blueprint.src))
        for row in range(rows):
            step[layout.edges[row]] = scale[row] / self.unit[layout.sources[row]]
        return IntegerNet(layout, self.coding, self.bits, weights, bias, shift, out_scale, self.unit_bits, step)

    # -- scales --------------------------------------------------------------------------------------------------

    def _row(self, row: int) -> tuple[IntArray, Array, float]:
        """What it reads, its weights in units of these, its bias."""
        slots, w = self.layout.sources[row], self.layout.row_weights[row]
        return slots, w * self.unit[slots], float(self.layout.bias[row] + w @ self.offset[slots])

    def _largest_scale(self, row: int) -> float:
        """With it the largest weight is the largest number, or the sums just fit."""
        slots, W, b = self._row(row)
        room = LARGEST - 0.5 * float(self.size[slots].sum())  # rounding up takes a half each
        if room <= LARGEST / 2:
            raise ExportError(
                f"a neuron reads {len(slots)} states, whose sum in {self.bits} bits each could be more than 32 bits "
                'hold; use dtype="int8"'
            )
        fits = (float(np.abs(W) @ self.size[slots]) + abs(b) + float(np.abs(W) @ self._means(slots))) / room
        return float(max(float(np.abs(W).max(initial=0.0)) / self.high, fits, 1e-30))

    def _means(self, slots: IntArray) -> Array:
        """What the bias may be moved by, a weight of 1 being cut."""
        return np.asarray(np.abs(self.seen.states[:, slots].mean(axis=0) - self.offset[slots]) / self.unit[slots])

    def _least_scale(self, row: int) -> float:
        """Below it sums could be too large, even with all weights cut."""
        if self.bits == 16:
            return self._largest_scale(row)
        b = self._row(row)[2]
        return max((abs(b) + 1e-30) / LARGEST * 4, 1e-30)

    def _free(self, row: int) -> Array:
        return np.maximum(self._largest_scale(row) * SHARES, self._least_scale(row))

    def _powers(self, row: int, one: float) -> Array:
        """Powers of 2, times `one`, about the largest scale."""
        top = math.ceil(math.log2(self._largest_scale(row) / one))
        least = max(math.ceil(math.log2(self._least_scale(row) / one)), -FURTHEST)
        return np.asarray(one * 2.0 ** np.maximum(np.arange(top, top - 5.0, -1.0), least))

    def _line(self, row: int) -> tuple[float, int]:
        """Scale and shift of a neuron whose unit is the one times 2 to the other; the unit may widen, if it can."""
        slot, best = self.blueprint.n_inputs + row, (np.inf, 1.0, 0, 1.0)
        free = self.layout.once and slot not in self.layout.outputs
        widths = (1.0, 1.2, 1.45, 1.75) if free else (1.0,)
        for wide in widths:
            unit = self.unit[slot] * wide
            for scale in np.unique(self._powers(row, unit)).tolist():
                error = self._rounded(row, scale, 0)[2] + unit**2 / 12
                if error < best[0]:
                    best = (error, scale, round(math.log2(unit / scale)), unit)
        self.unit[slot] = best[3]
        return best[1], best[2]

    def _best(self, row: int, scales: Array) -> tuple[float, float]:
        """The scale with the least error, and the error."""
        errors = [self._rounded(row, float(scale), 0)[2] for scale in scales]
        k = int(np.argmin(errors))
        return float(scales[k]), errors[k]

    def _share_units(self) -> None:
        """Outputs that are compared with each other have one unit, too, where others read them."""
        slots = [slot for slot in self.layout.outputs.tolist() if slot >= 0]
        if self.blueprint.link == "softmax":
            self.unit[slots] = self.unit[slots].max(initial=0.0)

    def _common_scale(self) -> dict[int, float]:
        """Outputs that are compared with each other have one scale, so that the largest is the largest."""
        if self.blueprint.link != "softmax" or not self.sums:
            return {}
        rows, read = sorted(self.sums), sorted(self.sums & self.read)
        if read:
            one = float(self.unit[self.blueprint.n_inputs + read[0]])  # all have this one
            scales = np.sort(np.max([self._powers(row, one) for row in rows], axis=0))[::-1]
        else:
            top = max(self._largest_scale(row) for row in rows)
            scales = np.maximum(top * SHARES, max(self._least_scale(row) for row in rows))
        errors = [sum(self._rounded(row, float(scale), 0)[2] for row in rows) for scale in scales]
        return dict.fromkeys(rows, float(scales[int(np.argmin(errors))]))

    # -- weights -------------------------------------------------------------------------------------------------

    def _rounded(self, row: int, scale: float, shift: int, thorough: bool = False) -> tuple[IntArray, int, float]:
        """Whole numbers, the bias with a rounding half in it, the variance of the error of the sum."""
        slots, W, b = self._row(row)
        mean, C = self.seen.moments(slots)
        mean, C = (mean - self.offset[slots]) / self.unit[slots], C / np.outer(self.unit[slots], self.unit[slots])
        C = C + np.eye(len(W)) * (1e-3 * np.trace(C) / max(len(W), 1) + 1e-12)
        wq = np.clip(np.rint(W / scale), -self.high, self.high)
        if thorough and len(W) <= MANY:
            better = _descended(wq, W / scale, C, self.high)
            if np.abs(better) @ self.size[slots] <= max(float(np.abs(wq) @ self.size[slots]), LARGEST / 2):
                wq = better
        left = W - scale * wq
        bias = round((b + float(left @ mean)) / scale) + ((1 << shift) >> 1 if shift > 0 else 0)
        return wq.astype(np.int64), bias, float(left @ C @ left)


def float_outputs(blueprint: Blueprint, X: Array) -> Array:
    """Outputs (n, n_outputs) in float64, of the samples or after each step, which a header in floats comes near to."""
    layout, n = Layout(blueprint, padded=False, size=4), blueprint.n_inputs
    mean, scale = (
        (0.0, 1.0) if blueprint.x_mean is None or blueprint.x_scale is None else (blueprint.x_mean, blueprint.x_scale)
    )
    Z = np.asarray((X - mean) / scale)
    if np.isfinite(blueprint.x_cut):
        Z = np.clip(np.where(np.isfinite(X), Z, 0.0), -blueprint.x_cut, blueprint.x_cut)
    found = np.zeros((len(Z), blueprint.n_outputs))
    there = layout.outputs >= 0
    if blueprint.timing is None:
        s = np.zeros((len(Z), layout.n_slots))
        s[:, :n] = Z
        for _ in _ticked(layout, s):
            pass
        found[:, there] = s[:, layout.outputs[there]]
        return found
    s = np.zeros((1, layout.n_slots))
    total, per_step, delay = np.zeros(blueprint.n_outputs), blueprint.timing.per_step, blueprint.timing.delay
    ticks, means = 0, blueprint.timing.readout == "mean"
    for t, z in enumerate(Z):
        s[0, :n] = z
        for _ in range(per_step):
            ticks += 1
            for _ in _ticked(layout, s):
                pass
            if means and ticks > delay and (ticks - delay) % per_step == 0:
                total[there] += s[0, layout.outputs[there]]
        later, sums = s.copy(), total.copy()
        for k in range(1, delay + 1):
            for _ in _ticked(layout, later):
                pass
            if means and ticks + k > delay and (ticks + k - delay) % per_step == 0:
                sums[there] += later[0, layout.outputs[there]]
        found[t] = sums / (t + 1) if means else np.where(there, later[0, np.maximum(layout.outputs, 0)], 0.0)
    return found


def _descended(wq: Array, want: Array, C: Array, high: int) -> Array:
    """Whole numbers that make (wq - want)' C (wq - want) smaller, one after the other, until none does."""
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


def _watch(layout: Layout, coding: Coding, X: Array) -> _Seen:
    """Run the net in floats on what the coding leaves of samples."""
    states = list(_states(layout, coding.unit * coding(X) + coding.offset))
    found = np.concatenate(states[-TICKS:] if layout.blueprint.timing is None else states)
    return _Seen(found, np.abs(found).max(axis=0))


def _states(layout: Layout, Z: Array) -> Iterator[Array]:
    blueprint, n = layout.blueprint, layout.blueprint.n_inputs
    if blueprint.timing is None:
        s = np.zeros((len(Z), layout.n_slots))
        s[:, :n] = Z
        for _ in _ticked(layout, s):
            yield s.copy()
        return
    s = np.zeros((1, layout.n_slots))
    for z in Z:
        s[0, :n] = z
        for _ in range(blueprint.timing.per_step):
            for _ in _ticked(layout, s):
                pass
            yield s.copy()


def _ticked(layout: Layout, s: Array) -> Iterator[None]:
    """Turn after turn, in place."""
    n = layout.blueprint.n_inputs
    for turn in layout.turns:
        for _ in range(turn.times):
            after = s if layout.once else s.copy()
            for a, b in turn.rows:
                phi = _FLOAT[layout.block_of(a).activation]
                for row in range(a, b):
                    t = s[:, layout.sources[row]] @ layout.row_weights[row] + layout.bias[row]
                    after[:, n + row] = phi(t)
            s[:] = after
            yield
