"""`IntegerNet`: a net in whole numbers, as it runs on a chip without floats, and in NumPy with the same bits.

A state is a whole number q that stands for q times the *unit* of its neuron; a row of weights is whole numbers times a
*scale* r of its own. With W[i, j] = w[i, j] unit[i] about r[j] wq[i, j],

    acc[j] = bias[j] + sum of wq[i, j] q[i]          at most `bound[j]`, whatever comes in: it fits in 32 bits
    q[j]   = phi(acc[j] >> shift[j])

Where phi is made of straight lines (identity, relu, leaky_relu) the unit of a neuron is r 2^shift, chosen so that its
states on training data fill the type. The others read a table over |t|, with straight lines in between; there r is a
power of 2, so that a shift brings acc to the steps of the table, and 1 is 2^7 or 2^15. Outputs are acc as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshnn.arrays import Array, IntArray
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.c_layout import Layout

__all__ = ["LINES", "TABLES", "Coding", "IntegerNet", "Table"]

#: Activations that are made of straight lines.
LINES = ("identity", "relu", "leaky_relu")
#: Sums that are shifted up are cut to this first.
LIMIT = 2**30
#: 0.01 in whole numbers: 41 / 4096.
LEAK, LEAK_BITS = 41, 12


@dataclass(frozen=True)
class Table:
    """Values of an activation, in steps, to be joined by straight lines."""

    fraction: int  # bits of t behind the point
    step: int  # bits of t within a step
    values: IntArray  # 1 being 2^15, at most 2^15 - 1

    @property
    def most(self) -> int:
        """The largest |t| that is looked up."""
        return ((len(self.values) - 1) << self.step) - 1

    def __call__(self, t: IntArray) -> IntArray:
        """Of t from 0 to `most`."""
        k, rest = t >> self.step, t & ((1 << self.step) - 1)
        low = self.values[k]
        return np.asarray(low + (((self.values[k + 1] - low) * rest) >> self.step))


#: Of each activation: what is tabulated over |t|, and up to which power of 2.
TABLES: dict[str, tuple[Any, int]] = {
    "tanh": (np.tanh, 2),
    "sigmoid": (lambda t: 1.0 / (1.0 + np.exp(-t)), 3),
    "gauss": (lambda t: np.exp(-t * t), 2),
    "softplus": (lambda t: np.log1p(np.exp(-t)), 3),
    "elu": (lambda t: -np.expm1(-t), 3),
    "sin": (lambda t: np.sin(2.0 * np.pi * t), 0),  # t in turns
}


def table_of(name: str, bits: int) -> Table:
    """For states of 8 or 16 bits: longer tables, and further, for the latter."""
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
    """How features become whole numbers q: `x - middle` of whole ones, else `(x - zero) * factor`, rounded and cut."""

    kind: str  # of C: what is handed in
    whole: bool  # whether features are whole numbers as they are
    middle: int
    least: int  # of q
    most: int
    zero: Array
    factor: Array
    #: The scaled feature that the net sees is `unit * q + offset`.
    unit: Array
    offset: Array

    @classmethod
    def learn(cls, blueprint: Blueprint, X: Array, bits: int) -> Coding:
        """From training samples (n, n_inputs): whole numbers that fit stay as they are."""
        n = blueprint.n_inputs
        mean = np.zeros(n) if blueprint.x_mean is None else blueprint.x_mean
        scale = np.ones(n) if blueprint.x_scale is None else blueprint.x_scale
        high = 2 ** (bits - 1) - 1
        least, most = (float(X.min()), float(X.max())) if X.size else (0.0, 0.0)
        whole = np.isfinite(X).all() and np.array_equal(X, np.rint(X)) and not np.isfinite(blueprint.x_cut)
        # the narrower, the smaller are the sums that could be
        kinds = [("int8_t", -128, 127, 0), ("uint8_t", 0, 255, 128 if bits == 8 else 0)]
        kinds += [("int16_t", -(2**15), 2**15 - 1, 0), ("uint16_t", 0, 2**16 - 1, 2**15)] if bits == 16 else []
        for kind, low, top, middle in kinds:
            if whole and low <= least and most <= top:
                offset = (middle - mean) / scale
                return cls(kind, True, middle, low - middle, top - middle, np.zeros(n), np.ones(n), 1 / scale, offset)
        with np.errstate(invalid="ignore"):
            z = np.clip(np.nan_to_num((X - mean) / scale), -blueprint.x_cut, blueprint.x_cut)
        # as wide as the samples are, but wild ones are cut: they would cost all others their digits
        width = np.minimum(np.abs(z).max(axis=0, initial=0.0), 8.0) if len(z) else np.full(n, 4.0)
        step = np.where(width > 0, width, 1.0) / high
        with np.errstate(divide="ignore"):
            factor = 1.0 / (scale * step)
        return cls(f"int{bits}_t", False, 0, -high, high, mean, factor, step, np.zeros(n))

    def __call__(self, X: Any) -> IntArray:
        """Features as the net takes them; in float32, as C does it."""
        if self.whole:
            found, low, high = np.asarray(X), self.least + self.middle, self.most + self.middle
            if not np.array_equal(found, np.rint(found)) or (found < low).any() or (found > high).any():
                raise ExportError(f"this net takes whole numbers from {low} to {high}")
            return found.astype(np.int64) - self.middle
        x = np.asarray(X, np.float32)
        with np.errstate(all="ignore"):
            z = (x - self.zero.astype(np.float32)) * self.factor.astype(np.float32)
            z = np.where(np.isfinite(x), z, np.float32(0))
            z = np.clip(z, np.float32(self.least), np.float32(self.most))
            return np.where(z < 0, z - np.float32(0.5), z + np.float32(0.5)).astype(np.int64)


class IntegerNet:
    """A net in whole numbers.

    Parameters
    ----------
    layout : Layout
        Of the blueprint, in which absent edges may be weights of 0.
    coding : Coding
    bits : 8 or 16
        Of weights and states.
    weights : list of arrays
        Of each row, whole numbers.
    bias, shift : arrays (n_rows,)
        A rounding half is part of the bias.
    out_scale : array (n_outputs,)
        What outputs are to be multiplied by.
    unit_bits : dict
        Of softplus and elu: bits behind the point that states have.
    step : array (n_edges,)
        What 1 of a weight stands for, of every edge of the blueprint; 0 where there is none.
    """

    def __init__(
        self, layout: Layout, coding: Coding, bits: int, weights: list[IntArray], bias: IntArray, shift: IntArray,
        out_scale: Array, unit_bits: dict[str, int], step: Array,
    ) -> None:  # fmt: skip
        self.layout, self.blueprint, self.coding, self.bits = layout, layout.blueprint, coding, bits
        self.weights, self.bias, self.shift, self.out_scale = weights, bias, shift, out_scale
        self.unit_bits, self.step = unit_bits, step
        kinds = {block.activation for block in layout.blocks} - set(LINES)
        self.tables = {name: table_of(name, bits) for name in sorted(kinds)}
        self.sums, self.read = sum_rows(layout)
        self.bound = self._bounds()

    @property
    def most(self) -> int:
        """The largest state."""
        return int(2 ** (self.bits - 1) - 1)

    def _bounds(self) -> IntArray:
        """Of each row the largest |acc| that any inputs can bring about."""
        first = self.blueprint.n_inputs
        size = np.full(self.layout.n_slots, self.most + 1, np.int64)
        size[:first] = max(-self.coding.least, self.coding.most)
        found = [
            int(np.abs(w) @ size[s]) + abs(int(b))
            for w, s, b in zip(self.weights, self.layout.sources, self.bias, strict=True)
        ]
        bound = np.array(found, dtype=np.int64).reshape(-1)
        if (bound >= 2**31).any():
            raise ExportError(f"a sum of the net could be {bound.max()}, more than 32 bits hold")  # chosen not to
        return bound

    # -- the same bits as in C -----------------------------------------------------------------------------------

    def outputs(self, X: Any) -> IntArray:
        """Outputs (n, n_outputs) for features as the net takes them, of the samples or of each step."""
        Q = np.asarray(X, np.int64)
        timing, n = self.blueprint.timing, self.blueprint.n_inputs
        if timing is None:
            return self._run(Q)
        s = np.zeros((1, self.layout.n_slots), np.int64)
        found = np.empty((len(Q), self.blueprint.n_outputs), np.int64)
        for t, x in enumerate(Q):
            s[0, :n] = x
            for _ in range(timing.per_step):
                raw = self._tick(s)
            later = s.copy()
            for _ in range(timing.delay):
                raw = self._tick(later)
            found[t] = self._read(later, raw)[0]
        return found

    def _run(self, Q: IntArray) -> IntArray:
        s = np.zeros((len(Q), self.layout.n_slots), np.int64)
        s[:, : self.blueprint.n_inputs] = Q
        return self._read(s, self._tick(s))

    def _tick(self, s: IntArray) -> dict[int, IntArray]:
        """All turns; the sums of outputs that are given as they are."""
        first, given = self.blueprint.n_inputs, {}
        for turn in self.layout.turns:
            for _ in range(turn.times):
                after = s if self.layout.once else s.copy()
                for a, b in turn.rows:
                    name = self.layout.block_of(a).activation
                    for row in range(a, b):
                        acc = s[:, self.layout.sources[row]] @ self.weights[row] + self.bias[row]
                        if row in self.sums:
                            given[row] = acc
                        if row not in self.sums or row in self.read:
                            after[:, first + row] = self.activated(name, self._shifted(acc, row))
                s[:] = after
        return given

    def _shifted(self, acc: IntArray, row: int) -> IntArray:
        k = int(self.shift[row])
        if k >= 0:
            return acc >> k
        limit = LIMIT >> -k
        return np.clip(acc, -limit, limit) << -k

    def activated(self, name: str, t: IntArray) -> IntArray:
        """States from sums that were shifted."""
        most = self.most
        if name == "relu":
            return np.asarray(np.clip(t, 0, most))
        if name == "leaky_relu":
            return np.asarray(np.clip(np.where(t < 0, (t * LEAK) >> LEAK_BITS, t), -most, most))
        if name == "identity":
            return np.asarray(np.clip(t, -most, most))
        table, down = self.tables[name], 16 - self.bits
        half = (1 << down) >> 1
        if name == "sin":
            return np.asarray(np.minimum((table(t & 0xFFFF) + half) >> down, most))
        v = table(np.minimum(np.abs(t), table.most))
        if name == "tanh":
            q = np.minimum((v + half) >> down, most)
            return np.asarray(np.where(t < 0, -q, q))
        if name == "sigmoid":
            return np.asarray(np.minimum((np.where(t < 0, 32768 - v, v) + half) >> down, most))
        if name == "gauss":
            return np.asarray(np.minimum((v + half) >> down, most))
        # softplus and elu, in steps of t: a part from the table and a straight line
        v = (v + (1 << (14 - table.fraction))) >> (15 - table.fraction)
        line = np.maximum(t, 0)
        t = line + v if name == "softplus" else np.where(t < 0, -v, line)
        back = table.fraction - self.unit_bits[name]
        return np.asarray(np.clip((t + ((1 << back) >> 1)) >> back, -most, most))

    def _read(self, s: IntArray, raw: dict[int, IntArray]) -> IntArray:
        found = np.zeros((len(s), self.blueprint.n_outputs), np.int64)
        for o, slot in enumerate(self.layout.outputs.tolist()):
            row = slot - self.blueprint.n_inputs
            if slot >= 0:
                found[:, o] = raw[row] if row in raw else s[:, slot]
        return found


def sum_rows(layout: Layout) -> tuple[set[int], set[int]]:
    """Rows of outputs that are sums without more, which are given as they are; and all rows that are read by others."""
    read = {int(slot) - layout.blueprint.n_inputs for found in layout.sources for slot in found.tolist()}
    rows = [slot - layout.blueprint.n_inputs for slot in layout.outputs.tolist() if slot >= 0]
    return {row for row in rows if layout.block_of(row).activation == "identity"}, {row for row in read if row >= 0}
