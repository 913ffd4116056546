"""Nets in the layout of a C header, run in NumPy, with floats or integers.

`FloatNet` computes in float64 the values that a float header approximates; `IntegerNet` is bit-identical to C. There, a
state is an integer q that represents q times the *unit* of its neuron. The weights of a row are integers times the
*scale* r of the row. With W[i, j] = w[i, j] unit[i], which is approximately r[j] wq[i, j],

    acc[j] = bias[j] + sum of wq[i, j] q[i]          at most `bound[j]` for any input: it fits in 32 bits
    q[j]   = phi(acc[j] >> shift[j])

For piecewise linear phi (identity, relu, leaky_relu, hardtanh) the unit of a neuron is r 2^shift, chosen so that its
states on the training data use the range of the type; for hardtanh it is at most 1 / (largest integer), so that q is
exactly clipped. Other activations interpolate a table over |t|. For them, r is a power of 2, so that a shift converts
acc to the steps of the table, and 1 is 2^7 or 2^15. Outputs with the identity are acc.

A feature that is not finite is represented by the smallest number of the type, which has no other meaning; the outputs
are then the smallest 32-bit integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.codes import FORMULAS
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.c.layout import Layout
from meshnn.export.ranges import Ranges


class ReferenceNet:
    """The rows of a layout with weights of some number type, per row in the order of `layout.sources`."""

    def __init__(self, layout: Layout, weights: Sequence[Array], bias: Array) -> None:
        self.layout, self.blueprint, self.weights, self.bias = layout, layout.blueprint, weights, bias
        self.shift: IntArray = np.zeros(layout.n_rows, np.int64)  # shift of the sums before activations
        self.unshifted: set[int] = set()  # rows whose sums are outputs
        self.dtype, self.size = "float32", 4  # type in C, and bytes, of weights and states
        self.coding: Coding | None = None  # conversion of features to integers

    def activate(self, row: int, total: Array) -> Array:
        """Return the states of a row from its weighted sums."""
        raise NotImplementedError

    def tick(self, s: Array, seen: list[Array] | None = None) -> dict[int, Array]:
        """Compute all stages in place, and append copies of the states to `seen`; return the sums that are outputs."""
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

    def outputs(self, Z: Array, seen: list[Array] | None = None) -> Array:
        """Return the outputs (n, n_outputs) of scaled features; for a stateful net, after each step.

        The states (n, n_slots) after each tick are appended to `seen`; for a stateful net, those of one step after the
        other.
        """
        timing, n = self.blueprint.timing, self.blueprint.n_inputs
        s = np.zeros((1 if timing else len(Z), self.layout.n_slots), Z.dtype)
        if timing is None:
            s[:, :n] = Z
            return self._read(s, self.tick(s, seen))
        found, mean = np.zeros((len(Z), self.blueprint.n_outputs), Z.dtype), timing.readout == "mean"
        total = np.zeros(self.blueprint.n_outputs, Z.dtype)
        for t, z in enumerate(Z):
            s[:, :n] = z
            later, more = s, total
            for k in range(1, timing.per_step + timing.delay + 1):
                sums = self.tick(later, seen if k <= timing.per_step else None)
                past = t * timing.per_step + k - timing.delay
                if mean and past > 0 and past % timing.per_step == 0:
                    more = more + self._read(later, sums)[0]
                # later ticks do not change the carried state: they repeat the last input until the outputs are read
                if k == timing.per_step:
                    later, total = s.copy(), more
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
        found: Array = FORMULAS[self.layout.block_of(row).activation](np, total)
        return found


def scaled(blueprint: Blueprint, X: Array) -> Array:
    """Return encoded features in the scaling of the net; in a stream, features that are not finite become the mean."""
    Z = np.asarray(X, np.float64)
    if blueprint.x_mean is not None and blueprint.x_scale is not None:
        Z = (Z - blueprint.x_mean) / blueprint.x_scale
    if np.isfinite(blueprint.x_cut):
        Z = np.clip(np.where(np.isfinite(X), Z, 0.0), -blueprint.x_cut, blueprint.x_cut)
    return Z


def settled_states(layout: Layout, Z: Array) -> Array:
    """Return states (count, n_slots) of the float net: of the last 16 ticks, or of all ticks for a stateful net."""
    seen: list[Array] = []
    FloatNet(layout).outputs(Z, seen)
    return np.concatenate(seen[-16:] if layout.blueprint.timing is None else seen)  # cycles settle


def float_outputs(blueprint: Blueprint, X: Array) -> Array:
    """Return the outputs (n, n_outputs) of encoded features in float64; for a stateful net, after each step."""
    return FloatNet(Layout(blueprint, padded=False, size=4)).outputs(scaled(blueprint, X))


# -- integers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Values of an activation at equidistant points, for linear interpolation."""

    fraction: int  # fractional bits of t
    step: int  # bits of t within a step
    values: IntArray  # 1 is represented by 2^15; values are at most 2^15 - 1

    @property
    def most(self) -> int:
        """Return the largest |t| in the table."""
        return ((len(self.values) - 1) << self.step) - 1

    def __call__(self, t: IntArray) -> IntArray:
        """Return the interpolated values for t from 0 to `most`."""
        k, rest = t >> self.step, t & ((1 << self.step) - 1)
        low = self.values[k]
        return np.asarray(low + (((self.values[k + 1] - low) * rest) >> self.step))


#: Per activation, the tabulated function of |t| and the exponent of the power of 2 up to which it is tabulated. All
#: other activations are piecewise linear.
TABLES: dict[str, tuple[Any, int]] = {
    "tanh": (np.tanh, 2),
    "sigmoid": (lambda t: 1.0 / (1.0 + np.exp(-t)), 3),
    "gauss": (lambda t: np.exp(-t * t), 2),
    "softplus": (lambda t: np.log1p(np.exp(-t)), 3),
    "elu": (lambda t: -np.expm1(-t), 3),
    "sin": (lambda t: np.sin(2.0 * np.pi * t), 0),  # t in revolutions
}


def table_of(name: str, bits: int) -> Table:
    """Return the table for states of 8 or 16 bits."""
    function, reach = TABLES[name]
    if name == "sin":
        steps, fraction = (6, 16) if bits == 8 else (8, 16)
    else:
        reach += 1 if bits == 16 and name == "tanh" else 0
        fraction = 8 if bits == 8 else 12
        steps = {8: 6 if name in ("gauss", "elu") else 5, 16: 8}[bits]
    t = np.arange(2**steps + 1) * 2.0 ** (reach - steps)
    values = np.minimum(np.rint(function(t) * 2**15), 2**15 - 1).astype(np.int64)
    return Table(fraction, fraction + reach - steps, values)


@dataclass(frozen=True)
class Coding:
    """The integers q of features: `x - middle` of integers, else `(x - zero) * factor`, rounded and clipped.

    The scaled feature is then `unit * q + offset`.
    """

    kind: str  # C type of the features
    whole: bool  # whether features are integers that are not scaled
    middle: int
    least: int  # smallest value of q
    most: int
    zero: Array
    factor: Array
    unit: Array
    offset: Array
    clips: bool  # whether features that are not finite become the mean

    @classmethod
    def of(cls, blueprint: Blueprint, ranges: Ranges, bits: int) -> Coding:
        """Choose the coding from the ranges of the training rows: integers that fit are not scaled."""
        n = blueprint.n_inputs
        mean = np.zeros(n) if blueprint.x_mean is None else blueprint.x_mean
        scale = np.ones(n) if blueprint.x_scale is None else blueprint.x_scale
        high, clips = 2 ** (bits - 1) - 1, bool(np.isfinite(blueprint.x_cut))
        # narrow types limit the possible sums
        kinds = [("int8_t", -128, 127, 0), ("uint8_t", 0, 255, 128 if bits == 8 else 0)]
        kinds += [("int16_t", -(2**15), 2**15 - 1, 0), ("uint16_t", 0, 2**16 - 1, 2**15)] if bits == 16 else []
        for kind, low, top, middle in kinds:
            fits = low <= ranges.low.min() and ranges.high.max() <= top
            if ranges.whole and fits and not clips and not blueprint.columns:
                q, offset = (low - middle, top - middle), (middle - mean) / scale
                return cls(kind, True, middle, *q, np.zeros(n), np.ones(n), 1 / scale, offset, clips)
        ends = np.stack([ranges.low, ranges.high])
        with np.errstate(invalid="ignore"):
            z = np.clip(np.nan_to_num((ends - mean) / scale), -blueprint.x_cut, blueprint.x_cut)
        # the range of the samples, but outliers are clipped, because they would reduce the precision of all others
        width = np.minimum(np.abs(z).max(axis=0, initial=0.0), 8.0)
        step = np.where(width > 0, width, 1.0) / high
        with np.errstate(divide="ignore"):
            factor = 1.0 / (scale * step)
        return cls(f"int{bits}_t", False, 0, -high, high, mean, factor, step, np.zeros(n), clips)

    @property
    def missing(self) -> int | None:
        """Return the code of a feature that is not finite, if there is one."""
        return None if self.whole or self.clips else self.least - 1

    def __call__(self, X: Any) -> IntArray:
        """Return the integers of encoded features, computed in float32 as in C."""
        if self.whole:
            found, low, high = np.asarray(X), self.least + self.middle, self.most + self.middle
            if not np.array_equal(found, np.rint(found)) or (found < low).any() or (found > high).any():
                raise ExportError(f"features must be integers from {low} to {high}")
            return found.astype(np.int64) - self.middle
        x = np.asarray(X, np.float32)
        with np.errstate(all="ignore"):
            z = (x - self.zero.astype(np.float32)) * self.factor.astype(np.float32)
            z = np.where(np.isfinite(x), z, np.float32(0))
            z = np.clip(z, np.float32(self.least), np.float32(self.most))
            q = np.where(z < 0, z - np.float32(0.5), z + np.float32(0.5)).astype(np.int64)
        return q if self.missing is None else np.where(np.isfinite(x), q, self.missing)


class IntegerNet(ReferenceNet):
    """An integer net of 8 or 16 bits; absent edges may be weights of 0.

    The `bias` includes half a unit, for rounding. `out_scale` are the factors from integer outputs to floats,
    `unit_bits` the fractional bits of states of softplus and elu, and `step` (n_edges,) the value of 1 in the weight of
    each blueprint edge, 0 for omitted edges.
    """

    leak, leak_bits = 41, 12  # 0.01 is about 41 / 2^12
    limit = 2**30  # sums are clipped to this before they are shifted up

    def __init__(
        self, layout: Layout, coding: Coding, bits: int, weights: list[IntArray], bias: IntArray, shift: IntArray,
        out_scale: Array, unit_bits: dict[str, int], step: Array,
    ) -> None:  # fmt: skip
        super().__init__(layout, weights, bias)
        self.coding: Coding = coding
        self.dtype, self.size, self.bits, self.shift, self.out_scale = f"int{bits}", bits // 8, bits, shift, out_scale
        self.unit_bits, self.step, self.unshifted = unit_bits, step, layout.sums
        kinds = {block.activation for block in layout.blocks}
        self.tables = {name: table_of(name, bits) for name in sorted(kinds & set(TABLES))}
        self.most = 2 ** (bits - 1) - 1  # the largest state
        self.bound = self._bounds()

    def _bounds(self) -> IntArray:
        """Return the largest |acc| of each row that is possible for any input."""
        size = np.full(self.layout.n_slots, self.most + 1, np.int64)
        size[: self.blueprint.n_inputs] = max(-self.coding.least, self.coding.most)
        rows = zip(self.weights, self.layout.sources, self.bias, strict=True)
        bound = np.array([int(np.abs(w) @ size[s]) + abs(int(b)) for w, s, b in rows], dtype=np.int64)
        if (bound >= 2**31).any():
            raise ExportError(f"a sum of the net can reach {bound.max()}, more than 32 bits hold")
        return bound

    def outputs(self, Z: Any, seen: list[Array] | None = None) -> IntArray:
        """Return the outputs (n, n_outputs) of coded features, bit-identical to C; if stateful, after each step."""
        Q = np.asarray(Z, np.int64)
        code = self.coding.missing
        missing: Any = np.zeros(len(Q), np.bool_) if code is None else np.equal(Q, code).any(axis=1)
        found = super().outputs(np.where(missing[:, None], 0, Q), seen)
        if self.blueprint.timing is not None:  # from that step on
            missing = np.logical_or.accumulate(missing)
        found[missing] = -(2**31)
        return np.asarray(found)

    def activate(self, row: int, total: IntArray) -> IntArray:
        """Return the states of a row from its sums."""
        k, name, most = int(self.shift[row]), self.layout.block_of(row).activation, self.most
        t = total >> k if k >= 0 else np.clip(total, -(self.limit >> -k), self.limit >> -k) << -k
        if name not in TABLES:
            t = np.where(t < 0, (t * self.leak) >> self.leak_bits, t) if name == "leaky_relu" else t
            return np.asarray(np.clip(t, 0 if name == "relu" else -most, most))
        table, down = self.tables[name], 16 - self.bits
        v = table(t & 0xFFFF if name == "sin" else np.minimum(np.abs(t), table.most))
        if name in self.unit_bits:  # a linear part plus the table, in steps of t
            v = (v + (1 << (14 - table.fraction))) >> (15 - table.fraction)
            line = np.maximum(t, 0)
            t = line + v if name == "softplus" else np.where(t < 0, -v, line)
            back = table.fraction - self.unit_bits[name]
            return np.asarray(np.clip((t + ((1 << back) >> 1)) >> back, -most, most))
        if name == "sigmoid":
            v = np.where(t < 0, 32768 - v, v)
        q = np.minimum((v + ((1 << down) >> 1)) >> down, most)
        return np.asarray(np.where(t < 0, -q, q) if name == "tanh" else q)
