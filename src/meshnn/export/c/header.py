"""`Header`: the values for the template of a C header, for a float net or an integer net."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import groupby
from typing import Any

import numpy as np

from meshnn.arrays import BoolArray
from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.c.layout import WeightBlock
from meshnn.export.c.nets import ReferenceNet
from meshnn.export.c.text import (
    Tables,
    activation_source,
    arithmetic_begin,
    identifiers,
    integer_type,
    literal,
)  # fmt: skip

#: The kind of predictions for each link, and the C types of these kinds.
ANSWERS = {"softmax": "classes", "logit": "classes", "sigmoid": "labels"}
ANSWER_TYPES = {"classes": "int", "labels": "uint8_t", "values": "float"}


@dataclass(frozen=True)
class _Run:
    """Rows that one loop computes, or a single row without a loop."""

    begin: int
    end: int
    block: WeightBlock
    given: int | None  # the first output that their sums are assigned to, if they are outputs
    kept: bool  # whether their states are stored
    shift: int
    base: int  # index at which the weights of row 0 would be
    source: str  # expression of the slots that they read
    terms: Sequence[tuple[str, str]] = ()  # without a loop: weight and state of every product


class Header:
    """The values of the template `net.h.j2`: its variables are the attributes."""

    def __init__(self, net: ReferenceNet, name: str, optimize: str, notes: tuple[str, ...]) -> None:
        r, self.notes, self.layout, self.coding = net.blueprint, notes, net.layout, net.coding
        self.net, self.blueprint, self.tables = net, r, Tables(name.upper())
        self.p, self.up, self.version = f"{name}_", name.upper(), version("meshnn")
        self.n, self.m, self.integer = r.n_inputs, r.n_outputs, self.coding is not None
        # few edges are shorter without tables and loops; with too many, compilation would take minutes
        self.unrolled = optimize == "speed" or self.layout.n_edges <= (6 if self.integer else 8)
        if self.unrolled and self.layout.multiply_adds > 20_000:
            raise ExportError(
                f"code without loops may have at most 20,000 products, got {self.layout.multiply_adds:,}; "
                'use optimize="size"'
            )
        if self.integer and r.timing is not None and r.timing.readout == "mean":
            raise ExportError('readout="mean" needs an unbounded sum, which overflows integers; use dtype="float32"')
        # types of states, of sums and outputs, and of the features that the net takes
        self.T, self.S = (f"{net.dtype}_t", "int32_t") if self.integer else ("float", "float")
        self.X = "float" if self.coding is None else self.coding.kind
        self.columns = _columns(r)
        self.given = len(self.columns) or self.n
        self.answers = ANSWERS.get(r.link) or ("values" if r.values else "")
        self.checked = not np.isfinite(r.x_cut) if self.coding is None else self.coding.missing is not None
        whole = all(type(label) is int and -(2**31) < label < 2**31 for label in r.classes)
        numbered = self.answers != "classes" or (whole and list(r.classes) == list(range(len(r.classes))))
        self.labels, self.labels_whole = None if numbered else r.classes, whole
        self.interface = self._interface()
        self._choose_loops()
        self._choose_functions(name)
        slots, away = self.layout.outputs, self.n * self.direct
        self.copied = [
            (o, None if slot < 0 else slot - away)
            for o, slot in enumerate(slots.tolist())
            if slot < 0 or slot - self.n not in self.given_rows
        ]

    def _interface(self) -> dict[str, Any]:
        """Return the interface of the header, for CNet."""
        timed, answers = self.blueprint.timing is not None, self.answers
        width = self.n if self.integer else self.given
        shared = {"x": self.X, "width": width, "steps": timed, "returns": False}
        functions: dict[str, Any] = {"outputs": shared | {"y": self.S, "count": self.m}}
        if answers:
            single = answers == "classes" or (answers == "values" and self.m == 1)
            more = {"y": ANSWER_TYPES[answers], "count": 1 if single else self.m, "returns": single}
            functions["predict"] = shared | more
        if answers in ("classes", "labels"):
            functions["probabilities"] = shared | {"y": "float", "count": len(self.blueprint.classes)}
        if self.coding is not None and not self.coding.whole:
            more = {"x": "float", "width": self.given, "y": self.X, "count": self.n, "steps": False}
            functions["quantise"] = shared | more
        struct = "state" if timed else None
        return {"prefix": self.p, "struct": struct, "given": self.given, "outputs": self.m, "functions": functions}

    def _choose_functions(self, name: str) -> None:
        """Choose the elementary functions and activations that the header contains."""
        r, blocks = self.blueprint, self.layout.blocks
        names = set() if self.integer else {block.activation for block in blocks} - {"identity"}
        self.tables.bytes += 24 * ("sin" in names)  # the table in net_quarter
        calls = ["exp"] if self.answers in ("classes", "labels") or (r.values and r.link == "exp") else []
        calls += ["from_bits"] if self.checked or self.columns else []
        self.math = activation_source(sorted(names), False, name, calls)
        kept = {b.activation for b in blocks if any(self._kept(row) for row in range(b.begin, b.end))}
        self.activations = sorted(kept)  # activations of integer nets
        self.exact = self.coding is None or bool(calls) or not self.coding.whole or r.values
        self.arithmetic_begin = arithmetic_begin(name)

    # -- order of the rows -------------------------------------------------------------------------------------------

    def _choose_loops(self) -> None:
        """Choose between tables with loops and unrolled code for the weighted sums."""
        layout, net = self.layout, self.net
        rows = {slot - self.n: o for o, slot in enumerate(layout.outputs.tolist())}
        self.given_rows = {row: rows[row] for row in net.unshifted}  # the outputs that are sums of rows
        self.direct = self._reads_inputs_directly()
        self.room = max(layout.n_rows, 1) if self.direct else layout.n_slots
        full = [block for block in layout.blocks if block.full]
        widest = max((block.count for block in full), default=0)
        self.by = 0 if not full else 8 if widest >= 32 else 4 if widest >= 8 else 1  # products per iteration of a loop
        self.rest = self.by == 1 or any(block.count % self.by for block in full)
        self.has_bias = self.integer or net.bias.any()
        self.same_shift = len({int(net.shift[row]) for row in range(layout.n_rows) if self._kept(row)}) <= 1
        self.negative_shift = (net.shift < 0).any()
        at, slots = layout.listed()
        self.has_listed, self.listed_at = bool(len(slots)), sum((b.end - b.begin) * b.count for b in full)
        self.row_tables = [("weights", layout.table(list(net.weights)), self.T)]
        if self.has_bias:
            kind = integer_type(net.bias) if self.integer else "float"
            kind = {"uint8_t": "int16_t", "uint16_t": "int32_t"}.get(kind, kind)
            self.row_tables.append(("bias", net.bias, kind))
        if not self.same_shift:
            self.row_tables.append(("shift", net.shift, "int8_t"))
        if self.has_listed:
            self.row_tables.append(("from", slots, integer_type(np.array(layout.n_slots - 1))))
            self.row_tables.append(("at", at, integer_type(at)))
        self.stages = list(self._stages())

    def _reads_inputs_directly(self) -> bool:
        """Whether no row reads both inputs and neurons, so that inputs need not be copied to the states."""
        coding, layout = self.coding, self.layout
        if coding is None or not layout.once or coding.middle or self.X != self.T or self.blueprint.timing is not None:
            return False
        ends = [(block.first, block.first + block.count) for block in layout.blocks if block.full]
        listed = len(ends) < len(layout.blocks)
        return self.unrolled or (not listed and all(first >= self.n or end <= self.n for first, end in ends))

    def _kept(self, row: int) -> bool:
        """Return whether the state of a row is stored, that is, whether more than its sum is needed."""
        return row not in self.given_rows or row in self.layout.read

    def _stages(self) -> Iterator[dict[str, Any]]:
        """Yield the loops of each stage; without loops, its single rows, whose sums omit states that are still 0."""
        live = np.arange(self.layout.n_slots) < (self.n if self.blueprint.timing is None else self.layout.n_slots)
        for stage in self.layout.stages:
            runs = [run for a, b in stage.rows for run in self._runs(a, b)]
            if not self.unrolled:
                yield {"times": stage.times, "runs": runs}
                continue
            for _ in range(stage.times):
                yield {"times": 1, "runs": [replace(run, terms=self._terms(run.begin, live)) for run in runs]}
                for a, b in stage.rows:
                    live[self.n + a : self.n + b] = True

    def _runs(self, begin: int, end: int) -> Iterator[_Run]:
        """Split the rows of a block into runs of equal treatment: consecutive outputs, stored or not."""

        def role(row: int) -> tuple[int | None, bool, int]:
            given = self.given_rows.get(row)
            return None if given is None else row - given, self._kept(row), row * self.unrolled

        for (_, kept, _), rows in groupby(range(begin, end), role):
            start, *more = rows
            block = self.layout.block_of(start)
            first, array = block.first, "s"
            if self.direct:
                first, array = (first, "x") if first < self.n else (first - self.n, "s")
            source, base = f"{array} + {first}" if first else array, block.at - block.count * block.begin
            given, shift = self.given_rows.get(start), int(self.net.shift[start])
            yield _Run(start, start + len(more) + 1, block, given, kept, shift, base, source)

    def _terms(self, row: int, live: BoolArray) -> list[tuple[str, str]]:
        """Return weights and states of the products of a row."""
        wide = "(int32_t)" if self.net.dtype == "int16" else ""
        found = []
        for slot, w in zip(self.layout.sources[row].tolist(), self.net.weights[row].tolist(), strict=True):
            if (live[slot] or self.layout.once) and (w or not self.integer):
                state = f"x[{slot}]" if self.direct and slot < self.n else f"s[{slot - self.n * self.direct}]"
                found.append((f"{wide}{w}" if self.integer else literal(w), state))
        return found


def _columns(blueprint: Blueprint) -> list[dict[str, Any]]:
    """Return the columns of a table with their identifiers and the indices of their first features."""
    found, first = [], 0
    for column, name in zip(blueprint.columns, identifiers(each.name for each in blueprint.columns), strict=True):
        texts = enumerate(column.categories)
        known = [(k, text) for k, text in texts if "\0" not in text and len(text.encode()) < 4000]
        levels = [*column.categories, *["other"] * column.other]
        facts = {"id": name, "ids": identifiers(levels), "levels": levels, "known": known, "first": first}
        found.append(vars(column) | facts | {"width": column.width, "unseen": column.unseen})
        first += column.width
    return found
