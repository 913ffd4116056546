"""`net_header`: the values that the template of a C header needs, for a net in floats or in whole numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from meshnn.arrays import BoolArray
from meshnn.export.blueprint import ExportError
from meshnn.export.c.layout import WeightBlock
from meshnn.export.c.nets import ReferenceNet
from meshnn.export.c.text import (
    Tables,
    activation_source,
    arithmetic_begin,
    identifiers,
    integer_type,
    literal,
    render,
)  # fmt: skip


@dataclass(frozen=True)
class _Run:
    """Rows that one loop computes, or a single row without a loop."""

    begin: int
    end: int
    block: WeightBlock
    given: int | None  # the first output that their sums are, if they are outputs
    kept: bool  # whether their states are stored
    shift: int
    base: int = 0  # where the weights of row 0 would be
    source: str = ""  # the slots that they read
    start: str = ""  # without a loop: the bias, and sign, weight and state of every product
    terms: tuple[tuple[str, str, str], ...] = ()


def net_header(net: ReferenceNet, name: str, optimize: str, notes: tuple[str, ...]) -> tuple[str, int]:
    """Return the text of the header and the bytes of its tables."""
    found = _Header(net, name, optimize)
    return render("net.h.j2", **found.context(), notes=notes), found.tables.bytes


class _Header:
    def __init__(self, net: ReferenceNet, name: str, optimize: str) -> None:
        self.net, self.layout, self.blueprint, self.name = net, net.layout, net.blueprint, name
        self.integer, self.tables = net.coding is not None, Tables(name.upper())
        self.n, timing = self.blueprint.n_inputs, self.blueprint.timing
        # so few edges are shorter in lines than in tables and a loop; so many lines take a compiler minutes
        self.unrolled = optimize == "speed" or self.layout.n_edges <= (6 if self.integer else 8)
        if self.unrolled and self.layout.multiply_adds > 20_000:
            raise ExportError(
                f"without loops {self.layout.multiply_adds:,} products are too long for a compiler (at most 20,000); "
                'use optimize="size"'
            )
        if self.integer and timing is not None and timing.readout == "mean":
            raise ExportError('readout="mean" is a sum without bound, which overflows in integers; use dtype="float32"')
        self.state = f"{net.dtype}_t" if self.integer else "float"
        self.takes = "float" if net.coding is None else net.coding.kind
        self.direct = self._reads_inputs_directly()

    def _reads_inputs_directly(self) -> bool:
        """Whether no row reads inputs and neurons, so that inputs need not be copied to the states."""
        coding, blocks = self.net.coding, self.layout.blocks
        if coding is None or not self.layout.once or coding.middle or self.takes != self.state:
            return False
        apart = all(block.full and (block.first >= self.n or block.first + block.count <= self.n) for block in blocks)
        return self.blueprint.timing is None and (self.unrolled or apart)

    def context(self) -> dict[str, Any]:
        """Return all values of the template."""
        r, layout, coding, columns = self.blueprint, self.layout, self.net.coding, self._columns()
        answers = {"softmax": "classes", "logit": "classes", "sigmoid": "labels"}.get(r.link)
        answers = answers or ("values" if r.values else "")
        checked = not np.isfinite(r.x_cut) if coding is None else coding.missing is not None
        names = set() if self.integer else {block.activation for block in layout.blocks} - {"identity"}
        self.tables.bytes += 24 * ("sin" in names)  # the table in net_quarter
        calls = ["exp"] if answers in ("classes", "labels") or (answers == "values" and r.link == "exp") else []
        calls += ["from_bits"] if checked or columns else []
        kept = {b.activation for b in layout.blocks if any(self._kept(row) for row in range(b.begin, b.end))}
        whole = all(isinstance(c, int) and not isinstance(c, bool) and -(2**31) < c < 2**31 for c in r.classes)
        numbered = answers != "classes" or (whole and list(r.classes) == list(range(len(r.classes))))
        return self._walk() | self._outputs() | {
            "p": f"{self.name}_", "up": self.name.upper(), "tables": self.tables, "net": self.net, "layout": layout,
            "blueprint": r, "n": self.n, "given": len(columns) or self.n, "columns": columns, "coding": coding,
            "T": self.state, "X": self.takes, "integer": self.integer, "activations": sorted(kept), "checked": checked,
            "exact": coding is None or bool(calls) or not coding.whole or r.values, "answers": answers,
            "labels": None if numbered else r.classes, "labels_whole": whole, "dead": len(r.src) - int(r.alive.sum()),
            "arithmetic_begin": arithmetic_begin(self.name), "version": version("meshnn"),
            "math": activation_source(sorted(names), False, self.name, calls),
            "interface": self._interface(answers, len(columns) or self.n),
        }  # fmt: skip

    def _columns(self) -> list[dict[str, Any]]:
        """Return the columns of a table with their identifiers and first features."""
        found, first = [], 0
        columns = self.blueprint.columns
        for column, name in zip(columns, identifiers(column.name for column in columns), strict=True):
            texts = enumerate(column.categories)
            known = [(k, text) for k, text in texts if "\0" not in text and len(text.encode()) < 4000]
            levels = [*column.categories, *["other"] * column.other]
            facts = {"id": name, "ids": identifiers(levels), "levels": levels, "known": known, "first": first}
            found.append(vars(column) | facts | {"width": column.width, "unseen": column.unseen})
            first += column.width
        return found

    def _interface(self, answers: str, given: int) -> dict[str, Any]:
        """Return what a program must know to call the header, for CNet."""
        r, coding = self.blueprint, self.net.coding
        kinds = {"classes": "int", "labels": "uint8_t", "values": "float"}
        return {
            "prefix": f"{self.name}_", "timed": r.timing is not None, "given": given, "inputs": self.n,
            "outputs": r.n_outputs, "takes": self.takes, "gives": "int32_t" if self.integer else "float",
            "predicts": kinds.get(answers), "returns": answers == "classes" or (r.values and r.n_outputs == 1),
            "classes": len(r.classes), "quantises": coding is not None and not coding.whole,
        }  # fmt: skip

    # -- the walk over the rows ------------------------------------------------------------------------------------

    def _kept(self, row: int) -> bool:
        """Whether the state of a row is stored: not if only its sum is wanted."""
        return row not in self.net.unshifted or row in self.layout.read

    def _walk(self) -> dict[str, Any]:
        layout, net = self.layout, self.net
        counts = [block.count for block in layout.blocks if block.full]
        by = 0 if not counts else 8 if max(counts) >= 32 else 4 if max(counts) >= 8 else 1
        same = len({int(net.shift[row]) for row in range(layout.n_rows) if self._kept(row)}) <= 1
        at, slots = layout.listed()
        rows = [("weights", layout.table(list(net.weights)), self.state)]
        if self.integer or net.bias.any():
            kind = integer_type(net.bias) if self.integer else "float"
            rows.append(("bias", net.bias, {"uint8_t": "int16_t", "uint16_t": "int32_t"}.get(kind, kind)))
        rows += [] if same else [("shift", net.shift, "int8_t")]
        if len(slots):
            rows += [("from", slots, integer_type(np.array(layout.n_slots - 1))), ("at", at, integer_type(at))]
        return {
            "stages": list(self._stages()), "once": layout.once, "unrolled": self.unrolled, "direct": self.direct,
            "by": by, "rest": by == 1 or any(count % by for count in counts), "has_listed": bool(len(slots)),
            "listed_at": sum((b.end - b.begin) * b.count for b in layout.blocks if b.full), "rows_tables": rows,
            "has_bias": self.integer or net.bias.any(), "same_shift": same, "negative_shift": (net.shift < 0).any(),
            "room": max(layout.n_rows, 1) if self.direct else layout.n_slots,
        }  # fmt: skip

    def _stages(self) -> Iterator[dict[str, Any]]:
        live = np.arange(self.layout.n_slots) < (self.n if self.blueprint.timing is None else self.layout.n_slots)
        for stage in self.layout.stages:
            runs = [run for a, b in stage.rows for run in self._runs(a, b)]
            if not self.unrolled:
                yield {"times": stage.times, "runs": runs}
                continue
            for _ in range(stage.times):
                yield {
                    "times": 1,
                    "runs": [self._unrolled(run, row, live) for run in runs for row in range(run.begin, run.end)],
                }
                for a, b in stage.rows:
                    live[self.n + a : self.n + b] = True

    def _runs(self, begin: int, end: int) -> Iterator[_Run]:
        """Split rows of a block into runs that are treated alike: outputs that follow each other, stored or not."""
        start = begin
        for row in range(begin + 1, end + 1):
            if row < end and self._role(row) == self._role(start):
                continue
            block, given = self.layout.block_of(start), self._given(start)
            first, array = block.first, "s"
            if self.direct:
                first, array = (first, "x") if first < self.n else (first - self.n, "s")
            source = f"{array} + {first}" if first else array
            base = block.at - block.count * block.begin
            yield _Run(start, row, block, given, self._kept(start), int(self.net.shift[start]), base, source)
            start = row

    def _given(self, row: int) -> int | None:
        if row not in self.net.unshifted:
            return None
        return int(np.flatnonzero(self.layout.outputs == self.n + row)[0])

    def _role(self, row: int) -> tuple[int | None, bool]:
        given = self._given(row)
        return None if given is None else row - given, self._kept(row)

    def _unrolled(self, run: _Run, row: int, live: BoolArray) -> _Run:
        """Return one row as a sum without a loop; states that are still 0 are left out."""
        net, terms = self.net, []
        for slot, w in zip(self.layout.sources[row].tolist(), net.weights[row].tolist(), strict=True):
            state = f"x[{slot}]" if self.direct and slot < self.n else f"s[{slot - self.n * self.direct}]"
            if not (live[slot] or self.layout.once):
                continue
            if not self.integer:
                terms.append(("+", literal(w), state))
            elif w:
                wide = "(int32_t)" if net.dtype == "int16" else ""
                terms.append(("-" if w < 0 else "+", f"{wide}{abs(w)}", state))
        start = f"(int32_t){int(net.bias[row])}" if self.integer else literal(net.bias[row])
        given, shift = self._given(row), int(net.shift[row])
        return replace(run, begin=row, end=row + 1, given=given, shift=shift, start=start, terms=tuple(terms))

    def _outputs(self) -> dict[str, Any]:
        """Return where outputs are among the states, but for those whose sums are outputs."""
        slots, away = self.layout.outputs, self.n if self.direct else 0
        consecutive = not self.net.unshifted and (slots >= 0).all() and (np.diff(slots) == 1).all()
        copied = [
            (o, None if slot < 0 else slot - away)
            for o, slot in enumerate(slots.tolist())
            if slot < 0 or slot - self.n not in self.net.unshifted
        ]
        return {"first_output": int(slots[0]) - away if consecutive else None, "copied": copied}
