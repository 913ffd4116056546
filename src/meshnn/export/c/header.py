"""`net_header`: the values that the template of a C header needs, for a net in floats or in whole numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from meshnn.arrays import Array, BoolArray
from meshnn.export.blueprint import ExportError
from meshnn.export.c.integer import LEAK, LEAK_BITS, LIMIT, IntegerNet
from meshnn.export.c.layout import WeightBlock
from meshnn.export.c.reference import FloatNet
from meshnn.export.c.source import activation_source, arithmetic_begin
from meshnn.export.c.text import Tables, identifiers, integer_type, literal, render
from meshnn.export.limits import LIMITS

__all__ = ["net_header"]


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


def net_header(net: FloatNet | IntegerNet, name: str, optimize: str, notes: tuple[str, ...]) -> tuple[str, int]:
    """Return the text of the header and the bytes of its tables."""
    found = _Header(net, name, optimize)
    text = render("net.h.j2", **found.context(), notes=notes)
    return text, found.tables.bytes


class _Header:
    def __init__(self, net: FloatNet | IntegerNet, name: str, optimize: str) -> None:
        self.net, self.layout, self.blueprint, self.name = net, net.layout, net.blueprint, name
        self.integer = net if isinstance(net, IntegerNet) else None
        self.n, timing = self.blueprint.n_inputs, self.blueprint.timing
        few = LIMITS.few_edges_float if self.integer is None else LIMITS.few_edges_integer
        self.unrolled = self.layout.n_edges <= few or optimize == "speed"
        if self.unrolled and self.layout.multiply_adds > LIMITS.unrolled:
            raise ExportError(
                f"without loops {self.layout.multiply_adds:,} products are too long for a compiler (at most "
                f'{LIMITS.unrolled:,}); use optimize="size"'
            )
        if self.integer is not None and timing is not None and timing.readout == "mean":
            raise ExportError('readout="mean" is a sum without bound, which overflows in integers; use dtype="float32"')
        self.state = "float" if self.integer is None else f"int{self.integer.bits}_t"
        self.takes = "float" if self.integer is None else self.integer.coding.kind
        self.direct = self._reads_inputs_directly()
        self.tables = Tables(name.upper())

    def _reads_inputs_directly(self) -> bool:
        """Whether no row reads inputs and neurons, so that inputs need not be copied to the states."""
        net, blocks = self.integer, self.layout.blocks
        if net is None or not self.layout.once or net.coding.middle or self.takes != self.state:
            return False
        apart = all(block.full and (block.first >= self.n or block.first + block.count <= self.n) for block in blocks)
        return self.blueprint.timing is None and (self.unrolled or apart)

    def context(self) -> dict[str, Any]:
        """Return all values of the template."""
        r, net, layout = self.blueprint, self.integer, self.layout
        columns = self._columns()
        answers = {"softmax": "classes", "logit": "classes", "sigmoid": "labels"}.get(r.link)
        answers = answers or ("values" if r.values else "")
        clips = bool(np.isfinite(r.x_cut))
        checked = not clips if net is None else net.coding.missing is not None
        names = sorted({block.activation for block in layout.blocks} - {"identity"}) if net is None else []
        self.tables.bytes += 24 * ("sin" in names)  # the table in net_quarter
        calls = ["exp"] if answers in ("classes", "labels") or (answers == "values" and r.link == "exp") else []
        calls += ["from_bits"] if checked or columns else []
        exact = net is None or bool(calls) or not net.coding.whole or r.values
        p = f"{self.name}_"
        return self._types() | self._walk() | self._outputs() | self._meaning(answers) | {
            "p": p, "up": self.name.upper(), "tables": self.tables, "net": self.net, "layout": layout, "blueprint": r,
            "timing": r.timing, "n": self.n, "m": r.n_outputs, "given": len(columns) or self.n, "columns": columns,
            "categories": [column for column in columns if column["categories"]], "encoded": columns and net is None,
            "x_mean": None if r.x_scale is None else r.x_mean, "x_cut": r.x_cut, "clips": clips, "checked": checked,
            "x_factor": _inverse(r.x_scale), "exact": exact, "arithmetic_begin": arithmetic_begin(self.name),
            "math": activation_source(names, False, p, calls), "version": version("meshnn"), "answers": answers,
            "dead": len(r.src) - int(r.alive.sum()), "interface": self._interface(answers, len(columns) or self.n),
        }  # fmt: skip

    def _types(self) -> dict[str, Any]:
        found: dict[str, Any] = {"T": self.state, "X": self.takes, "integer": self.integer is not None}
        if self.integer is None:
            missing = f"{self.name}_from_bits(0x7fc00000u)"
            return found | {"S": "float", "zero": "0.0f", "dtype": "float32", "missing": missing, "coding": None}
        net, bound = self.integer, int(self.integer.bound.max(initial=0))
        kept = {b.activation for b in self.layout.blocks if any(self._kept(row) for row in range(b.begin, b.end))}
        return found | {
            "S": "int32_t", "zero": "0", "dtype": f"int{net.bits}", "missing": "INT32_MIN", "coding": net.coding,
            "most": net.most, "down": 16 - net.bits, "leak": LEAK, "leak_bits": LEAK_BITS, "limit": LIMIT,
            "activations": sorted(kept), "bound": bound, "bound_bits": np.log2(max(bound, 1)),
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
        r, integer = self.blueprint, self.integer is not None
        kinds = {"classes": "int", "labels": "uint8_t", "values": "float"}
        return {
            "prefix": f"{self.name}_", "timed": r.timing is not None, "given": given, "inputs": self.n,
            "outputs": r.n_outputs, "takes": self.takes, "gives": "int32_t" if integer else "float",
            "predicts": kinds.get(answers), "returns": answers == "classes" or (r.values and r.n_outputs == 1),
            "classes": len(r.classes), "quantises": self.integer is not None and not self.integer.coding.whole,
        }  # fmt: skip

    # -- the walk over the rows ------------------------------------------------------------------------------------

    def _kept(self, row: int) -> bool:
        """Whether the state of a row is stored: not if only its sum is wanted."""
        return row not in self.net.unshifted or row in self.layout.read

    def _walk(self) -> dict[str, Any]:
        layout, net = self.layout, self.net
        counts = [block.count for block in layout.blocks if block.full]
        by = 0 if not counts else 8 if max(counts) >= 32 else 4 if max(counts) >= 8 else 1
        shift = np.zeros(layout.n_rows, np.int64) if self.integer is None else self.integer.shift
        same = len({int(shift[row]) for row in range(layout.n_rows) if self._kept(row)}) <= 1
        at, slots = layout.listed()
        rows = [("weights", layout.table(list(net.weights)), self.state)]
        if self.integer is None:
            rows += [("bias", net.bias, "float")] if net.bias.any() else []
        else:
            kind = integer_type(net.bias)
            rows.append(("bias", net.bias, {"uint8_t": "int16_t", "uint16_t": "int32_t"}.get(kind, kind)))
            rows += [] if same else [("shift", shift, "int8_t")]
        if len(slots):
            rows += [("from", slots, integer_type(np.array(layout.n_slots - 1))), ("at", at, integer_type(at))]
        return {
            "stages": list(self._stages()), "once": layout.once, "unrolled": self.unrolled, "direct": self.direct,
            "by": by, "rest": by == 1 or any(count % by for count in counts), "has_listed": bool(len(slots)),
            "listed_at": sum((b.end - b.begin) * b.count for b in layout.blocks if b.full), "rows_tables": rows,
            "has_bias": self.integer is not None or net.bias.any(), "same_shift": same,
            "negative_shift": bool((shift < 0).any()), "room": max(layout.n_rows, 1) if self.direct else layout.n_slots,
        }  # fmt: skip

    def _stages(self) -> Iterator[dict[str, Any]]:
        live = np.arange(self.layout.n_slots) < (self.n if self.blueprint.timing is None else self.layout.n_slots)
        for stage in self.layout.stages:
            runs = [run for a, b in stage.rows for run in self._runs(a, b)]
            if not self.unrolled:
                yield {"times": stage.times, "runs": runs}
                continue
            for _ in range(stage.times):
                yield {"times": 1, "runs": [self._unrolled(run, row, live) for run in runs for row in _rows(run)]}
                for a, b in stage.rows:
                    live[self.n + a : self.n + b] = True

    def _runs(self, begin: int, end: int) -> Iterator[_Run]:
        """Split rows of a block into runs that are treated alike: outputs that follow each other, stored or not."""
        start = begin
        for row in range(begin + 1, end + 1):
            if row < end and self._role(row) == self._role(start):
                continue
            block, given = self.layout.block_of(start), self._given(start)
            shift = 0 if self.integer is None else int(self.integer.shift[start])
            first, array = block.first, "s"
            if self.direct:
                first, array = (first, "x") if first < self.n else (first - self.n, "s")
            source = f"{array} + {first}" if first else array
            base = block.at - block.count * block.begin
            yield _Run(start, row, block, given, self._kept(start), shift, base, source)
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
            if self.integer is None:
                terms.append(("+", literal(w), state))
            elif w:
                wide = "(int32_t)" if self.integer.bits == 16 else ""
                terms.append(("-" if w < 0 else "+", f"{wide}{abs(w)}", state))
        start = literal(net.bias[row]) if self.integer is None else f"(int32_t){int(net.bias[row])}"
        shift = 0 if self.integer is None else int(self.integer.shift[row])
        given = self._given(row)
        return replace(run, begin=row, end=row + 1, given=given, shift=shift, start=start, terms=tuple(terms))

    # -- outputs and what they mean --------------------------------------------------------------------------------

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

    def _meaning(self, answers: str) -> dict[str, Any]:
        r, labels = self.blueprint, None
        whole = all(isinstance(c, int) and not isinstance(c, bool) and -(2**31) < c < 2**31 for c in r.classes)
        if answers == "classes" and not (whole and list(r.classes) == list(range(len(r.classes)))):
            labels = np.array(r.classes) if whole else [str(label) for label in r.classes]
        return {
            "link": r.link, "labels": labels, "labels_whole": whole, "n_classes": len(r.classes),
            "out_scale": [] if self.integer is None else self.integer.out_scale.tolist(),
            "y_mean": None if r.y_scale is None else r.y_mean, "y_scale": r.y_scale,
        }  # fmt: skip


def _rows(run: _Run) -> range:
    return range(run.begin, run.end)


def _inverse(scale: Array | None) -> Array | None:
    with np.errstate(divide="ignore"):
        return None if scale is None else 1.0 / scale
