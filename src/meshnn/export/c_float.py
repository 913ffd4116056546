"""A net in float32 as a C header: the same bits on every machine, whatever its compiler makes of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from meshnn.export.blueprint import Blueprint, ExportError
from meshnn.export.c_layout import Block, Layout
from meshnn.export.c_math import activation_source, arithmetic_begin, arithmetic_end, literal
from meshnn.export.c_meaning import answers
from meshnn.export.c_text import floats, header, indented, integer_type, label_source, numbers

__all__ = ["MOST", "float_header"]

#: With so few edges code without tables is the smaller one: about 16 bytes an edge on ARM, against 5 and a loop.
FEW = 8
#: Edges of code without loops beyond which compilers take minutes.
MOST = 20_000


def float_header(blueprint: Blueprint, name: str, optimize: str, top: list[str]) -> str:
    """The text of the header; `top` begins the comment that it begins with."""
    return _Writer(blueprint, name, optimize).text(top)


class _Writer:
    def __init__(self, blueprint: Blueprint, name: str, optimize: str) -> None:
        self.blueprint, self.name, self.p = blueprint, name, f"{name}_"
        self.layout = Layout(blueprint, padded=False, size=4)
        self.unrolled = self.layout.n_edges <= FEW or optimize == "speed"
        if self.unrolled and self.layout.multiply_adds > MOST:
            raise ExportError(
                f"without loops {self.layout.multiply_adds:,} products are too long for a compiler (at most {MOST:,}); "
                'use optimize="size"'
            )

    def text(self, top: list[str]) -> str:
        meaning = answers(self.blueprint, self.p)
        kinds = sorted({block.activation for block in self.layout.blocks} - {"identity"})
        parts = [
            self._sizes(),
            arithmetic_begin(self.name),
            activation_source(kinds, False, self.p, meaning.calls),
            "" if self.unrolled else self._tables(),
            self._scaling(),
            self._tick(),
            self._run() if self.blueprint.timing is None else self._steps(),
            meaning.text,
            label_source(self.blueprint, self.p),
            arithmetic_end(),
        ]
        return header(self.name, [*top, "", *meaning.usage], "\n".join(part for part in parts if part))

    def _sizes(self) -> str:
        up, r = self.name.upper(), self.blueprint
        return f"#define {up}_INPUTS {r.n_inputs}\n#define {up}_OUTPUTS {r.n_outputs}\n"

    # -- tables ----------------------------------------------------------------------------------------------------

    def _tables(self) -> str:
        layout, p = self.layout, self.p
        found = floats(f"{p}weights", layout.weights())
        if layout.bias.any():
            found += floats(f"{p}bias", layout.bias)
        at, slots = layout.listed()
        if len(slots):
            found += numbers(integer_type(0, layout.n_slots - 1), f"{p}from", slots)
            found += numbers(integer_type(0, int(at[-1])), f"{p}at", at)
        return found

    def _scaling(self) -> str:
        """`net_take`: features into the first slots."""
        r, p, n = self.blueprint, self.p, self.blueprint.n_inputs
        head = f"static inline void {p}take(const float x[{n}], float s[{self.layout.n_slots}]) {{\n    int i;\n"
        if r.x_mean is None or r.x_scale is None:
            return f"{head}    for (i = 0; i < {n}; i++) s[i] = x[i];\n}}\n"
        with np.errstate(divide="ignore"):
            factor = 1.0 / r.x_scale
        lines = floats("mean", r.x_mean) + floats("factor", factor)
        body = "float z = (x[i] - mean[i]) * factor[i];\n"
        if np.isfinite(r.x_cut):
            cut = literal(r.x_cut)
            body += f"if (!(x[i] - x[i] == 0.0f)) z = 0.0f; /* missing */\nif (z > {cut}) z = {cut};\n"
            body += f"if (z < -{cut}) z = -{cut};\n"
        body += "s[i] = z;\n"
        return f"{head}{indented(lines)}    for (i = 0; i < {n}; i++) {{\n{indented(body, 8)}    }}\n}}\n"

    # -- ticks -----------------------------------------------------------------------------------------------------

    def _tick(self) -> str:
        """`net_ticks`: all of them, or one of a net in time."""
        slots, p, once = self.layout.n_slots, self.p, self.layout.once
        room = "" if once or not self.layout.n_rows else f"    float next[{self.layout.n_rows}];\n"
        body = "".join(self._turns())
        index = "    int r;\n" if "r++" in body else ""
        times = "    int k;\n" if "k++" in body else ""
        return self._sum() + f"static inline void {p}ticks(float s[{slots}]) {{\n{room}{index}{times}{body}}}\n"

    def _sum(self) -> str:
        """`net_sum`: a weighted sum, in the order of the slots."""
        if self.unrolled:
            return ""
        p, found = self.p, ""
        if any(block.full for block in self.layout.blocks):
            found += (
                f"static inline float {p}sum(float t, const float *w, const float *s, int n) {{\n"
                f"    int i;\n    for (i = 0; i < n; i++) t += {self.name.upper()}_AT(float, w, i) * s[i];\n"
                "    return t;\n}\n\n"
            )
        if not all(block.full for block in self.layout.blocks):
            offset = sum((b.end - b.begin) * b.count for b in self.layout.blocks if b.full)
            shown = f"{p}weights[{offset} + e]" if offset else f"{p}weights[e]"
            found += (
                f"static inline float {p}sum_of(float t, int r, const float *s) {{\n    int e;\n"
                f"    for (e = {p}at[r]; e < {p}at[r + 1]; e++) t += {shown} * s[{p}from[e]];\n    return t;\n}}\n\n"
            )
        return found

    def _turns(self) -> Iterator[str]:
        first, once = self.blueprint.n_inputs, self.layout.once
        live = np.arange(self.layout.n_slots) < first
        if self.blueprint.timing is not None:
            live[:] = True
        for turn in self.layout.turns:
            if self.unrolled:
                for _ in range(turn.times):
                    yield "".join(self._row(row, live) for a, b in turn.rows for row in range(a, b))
                    yield (
                        ""
                        if once
                        else "".join(
                            f"    s[{first + row}] = next[{row}];\n" for a, b in turn.rows for row in range(a, b)
                        )
                    )
                    for a, b in turn.rows:
                        live[first + a : first + b] = True
                continue
            body = "".join(self._loop(a, b) for a, b in turn.rows)
            if not once:
                for a, b in turn.rows:
                    body += f"    for (r = {a}; r < {b}; r++) s[{first} + r] = next[r];\n"
            yield f"    for (k = 0; k < {turn.times}; k++) {{\n{indented(body)}    }}\n" if turn.times > 1 else body

    def _loop(self, begin: int, end: int) -> str:
        """Rows of one block."""
        block, p = self.layout.block_of(begin), self.p
        start = f"{p}bias[r]" if self.layout.bias.any() else "0.0f"
        if block.full:
            weights = (
                f"{p}weights + {block.at} + {block.count} * (r - {block.begin})"
                if block.begin or block.at
                else (f"{p}weights + {block.count} * r")
            )
            value = f"{p}sum({start}, {weights}, s + {block.first}, {block.count})"
        else:
            value = f"{p}sum_of({start}, r, s)"
        into = f"s[{self.blueprint.n_inputs} + r]" if self.layout.once else "next[r]"
        return f"    for (r = {begin}; r < {end}; r++) {into} = {self._active(block, value)};\n"

    def _row(self, row: int, live: np.ndarray) -> str:
        """One row without a loop; states that are 0 are left out."""
        layout = self.layout
        value = literal(layout.bias[row]) if layout.bias[row] else ""
        for slot, w in zip(layout.sources[row].tolist(), layout.row_weights[row].tolist(), strict=True):
            if live[slot] or layout.once:
                term = f"{literal(w)} * s[{slot}]"
                value = f"{value} + {term}" if value else f"0.0f + {term}"
        into = f"s[{self.blueprint.n_inputs + row}]" if layout.once else f"next[{row}]"
        return f"    {into} = {self._active(layout.block_of(row), value or '0.0f')};\n"

    def _active(self, block: Block, value: str) -> str:
        return value if block.activation == "identity" else f"{self.p}{block.activation}({value})"

    # -- calls -----------------------------------------------------------------------------------------------------

    def _copy(self) -> str:
        """The outputs among the slots."""
        slots = self.layout.outputs
        if (slots >= 0).all() and (np.diff(slots) == 1).all():
            return f"for (i = 0; i < {len(slots)}; i++) y[i] = s[{slots[0]} + i];\n"
        return "".join(f"y[{k}] = {f's[{slot}]' if slot >= 0 else '0.0f'};\n" for k, slot in enumerate(slots.tolist()))

    def _run(self) -> str:
        r, p, slots = self.blueprint, self.p, self.layout.n_slots
        copy = self._copy()
        clear = "" if self.layout.once else f"    for (i = {r.n_inputs}; i < {slots}; i++) s[i] = 0.0f;\n"
        index = "    int i;\n" if "i++" in copy + clear else ""
        return (
            f"/* The outputs of the net, before anything is made of them. */\n"
            f"static inline void {p}outputs(const float x[{r.n_inputs}], float y[{r.n_outputs}]) {{\n"
            f"    float s[{slots}];\n{index}    {p}take(x, s);\n{clear}    {p}ticks(s);\n{indented(copy)}}}\n"
        )

    def _steps(self) -> str:
        """A state, steps that are taken in, and outputs that are read."""
        r, p, slots, timing = self.blueprint, self.p, self.layout.n_slots, self.blueprint.timing
        assert timing is not None
        copy = self._copy()
        index = "    int i;\n" if "i++" in copy else ""
        means = timing.readout == "mean"
        fields = f"    float s[{slots}]; /* inputs, then neurons */\n"
        if means:
            fields += f"    float sum[{r.n_outputs}]; /* of what was read so far */\n    uint32_t ticks;\n"
        clear = f"    for (i = 0; i < {slots}; i++) m->s[i] = 0.0f;\n"
        if means:
            clear += f"    for (i = 0; i < {r.n_outputs}; i++) m->sum[i] = 0.0f;\n    m->ticks = 0u;\n"
        text = f"/* What the net remembers between steps. */\ntypedef struct {{\n{fields}}} {p}state;\n\n"
        text += f"static inline void {p}init({p}state *m) {{\n    int i;\n{clear}}}\n\n"
        text += f"static inline void {p}read(const float s[{slots}], float y[{r.n_outputs}]) {{\n"
        text += f"{index}{indented(copy)}}}\n\n"
        if means:
            text += (
                f"/* One tick; outputs are added up where a step has come to them. */\n"
                f"static inline void {p}tick({p}state *m) {{\n    float y[{r.n_outputs}];\n    int i;\n"
                f"    {p}ticks(m->s);\n    m->ticks++;\n"
                f"    if (m->ticks <= {timing.delay}u) return;\n"
                f"    if ((m->ticks - {timing.delay}u) % {timing.per_step}u != 0u) return;\n"
                f"    {p}read(m->s, y);\n    for (i = 0; i < {r.n_outputs}; i++) m->sum[i] += y[i];\n}}\n\n"
            )
        one = f"{p}tick(m)" if means else f"{p}ticks(m->s)"
        text += f"/* Take in one step. */\nstatic inline void {p}step({p}state *m, const float x[{r.n_inputs}]) {{\n"
        if timing.per_step > 1:
            text += f"    int k;\n    {p}take(x, m->s);\n    for (k = 0; k < {timing.per_step}; k++) {one};\n}}\n\n"
        else:
            text += f"    {p}take(x, m->s);\n    {one};\n}}\n\n"
        return text + self._reading(one, means)

    def _reading(self, one: str, means: bool) -> str:
        r, p, timing = self.blueprint, self.p, self.blueprint.timing
        assert timing is not None
        held = f"The last step is held for {timing.delay} more ticks, until it has come to the outputs. " * (
            timing.delay > 0
        )
        text = f"/* The outputs after the steps so far, before anything is made of them. {held}*/\n"
        text += f"static inline void {p}outputs(const {p}state *m, float y[{r.n_outputs}]) {{\n"
        if not timing.delay and not means:
            return f"{text}    {p}read(m->s, y);\n}}\n"
        text += f"    {p}state later = *m;\n"
        if timing.delay:
            loop = one.replace("m->s", "later.s").replace("(m)", "(&later)")
            text += f"    int k;\n    for (k = 0; k < {timing.delay}; k++) {loop};\n"
        if not means:
            return f"{text}    {p}read(later.s, y);\n}}\n"
        steps = f"(float)((later.ticks - {timing.delay}u) / {timing.per_step}u)"
        text += "    int i;\n"
        text += f"    for (i = 0; i < {r.n_outputs}; i++) y[i] = later.sum[i] / {steps};\n}}\n"
        return text
