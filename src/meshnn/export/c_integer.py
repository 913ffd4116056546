"""An integer net as a C header: the bits of `IntegerNet`, on every machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from meshnn.export.blueprint import ExportError
from meshnn.export.c_float import MOST
from meshnn.export.c_layout import Block
from meshnn.export.c_math import arithmetic_begin, arithmetic_end, literal, math_source
from meshnn.export.c_meaning import answers
from meshnn.export.c_text import floats, header, indented, integer_type, label_source, numbers
from meshnn.export.integer import LEAK, LEAK_BITS, LIMIT, IntegerNet

__all__ = ["integer_header"]

#: With so few edges code without tables is the smaller one.
FEW = 6


def integer_header(net: IntegerNet, name: str, optimize: str, top: list[str]) -> str:
    """The text of the header; `top` begins the comment that it begins with."""
    return _Writer(net, name, optimize).text(top)


def _bias_type(net: IntegerNet) -> str:
    found = integer_type(int(net.bias.min(initial=0)), int(net.bias.max(initial=0)))
    return {"uint8_t": "int16_t", "uint16_t": "int32_t"}.get(found, found)


class _Writer:
    def __init__(self, net: IntegerNet, name: str, optimize: str) -> None:
        self.net, self.layout, self.blueprint = net, net.layout, net.blueprint
        self.up = name.upper()
        self.name, self.p, self.T, self.x = name, f"{name}_", f"int{net.bits}_t", net.coding.kind
        self.unrolled = self.layout.n_edges <= FEW or optimize == "speed"
        if self.unrolled and self.layout.multiply_adds > MOST:
            raise ExportError(
                f"without loops {self.layout.multiply_adds:,} products are too long for a compiler (at most {MOST:,}); "
                'use optimize="size"'
            )
        timing = self.blueprint.timing
        if timing is not None and timing.readout == "mean":
            raise ExportError(
                'readout="mean" adds outputs up for as long as a sequence lasts, and whole numbers end somewhere; use '
                'dtype="float32"'
            )
        self.first = self.blueprint.n_inputs
        self.direct = self._reads_inputs_directly()

    def _reads_inputs_directly(self) -> bool:
        """Whether no row reads inputs and neurons, so that inputs need not be copied to where the states are."""
        if not self.layout.once or self.net.coding.middle or self.x != self.T or self.blueprint.timing is not None:
            return False
        blocks, n = self.layout.blocks, self.first
        whole = all(block.full and (block.first >= n or block.first + block.count <= n) for block in blocks)
        return self.unrolled or whole

    def text(self, top: list[str]) -> str:
        net, p = self.net, self.p
        meaning = answers(self.blueprint, p, self.x, net.out_scale)
        exact = bool(meaning.calls) or not net.coding.whole or self.blueprint.values
        parts = [
            f"#define {self.up}_INPUTS {self.first}\n#define {self.up}_OUTPUTS {self.blueprint.n_outputs}\n",
            "#if defined(__GNUC__)\n"
            f"#define {self.up}_SHARED static __attribute__((noinline, unused))\n#else\n"
            f"#define {self.up}_SHARED static inline\n#endif\n",
            arithmetic_begin(self.name) if exact else "",
            math_source(meaning.calls, p) if meaning.calls else "",
            "" if self.unrolled else self._tables(),
            *(self._activation(name) for name in sorted({block.activation for block in self._stated()})),
            self._quantise(),
            self._ticks(),
            self._run() if self.blueprint.timing is None else self._steps(),
            meaning.text,
            label_source(self.blueprint, p),
            arithmetic_end() if exact else "",
        ]
        return header(
            self.name, [*top, *self._bounds(), "", *meaning.usage, *self._coded()], "\n".join(filter(None, parts))
        )

    def _stated(self) -> Iterator[Block]:
        """Blocks with rows whose states are kept."""
        for block in self.layout.blocks:
            if any(self._keeps(row) for row in range(block.begin, block.end)):
                yield block

    def _keeps(self, row: int) -> bool:
        return row not in self.net.sums or row in self.net.read

    def _bounds(self) -> list[str]:
        least = int(self.net.bound.max(initial=0))
        return [
            "Sums are whole numbers of 32 bits. Whatever comes in, the largest is at most "
            f"{least:,} = 2^{np.log2(max(least, 1)):.1f},",
            "the sum of all |weights| times the largest states, and the bias: none can overflow.",
        ]

    def _coded(self) -> list[str]:
        coding = self.net.coding
        if coding.whole:
            low, high = coding.least + coding.middle, coding.most + coding.middle
            return [f"Features are whole numbers from {low} to {high}, as they were in training."]
        return [
            f"Features are made whole by {self.p}quantise(features, x), features being float[{self.first}], or without",
            "floats by x[i] = (feature[i] - zero[i]) * factor[i], rounded and cut; see there for the numbers.",
        ]

    # -- tables ----------------------------------------------------------------------------------------------------

    def _tables(self) -> str:
        net, layout, p = self.net, self.layout, self.p
        weights = []
        for block in layout.blocks:
            if block.full:
                matrix = np.zeros((block.end - block.begin, block.count), np.int64)
                for row in range(block.begin, block.end):
                    matrix[row - block.begin, layout.sources[row] - block.first] = net.weights[row]
                weights.append(matrix.ravel())
        listed = [net.weights[row] for row in range(layout.n_rows) if not layout.block_of(row).full]
        found = numbers(self.T, f"{p}weights", np.concatenate([*weights, *listed, np.zeros(0, np.int64)]))
        found += numbers(_bias_type(net), f"{p}bias", net.bias)
        if not self._same_shift():
            found += numbers("int8_t", f"{p}shift", net.shift)
        at, slots = layout.listed()
        if len(slots):
            found += numbers(integer_type(0, layout.n_slots - 1), f"{p}from", slots)
            found += numbers(integer_type(0, int(at[-1])), f"{p}at", at)
        return found

    def _same_shift(self) -> bool:
        kept = [row for row in range(self.layout.n_rows) if self._keeps(row)]
        return len({int(self.net.shift[row]) for row in kept}) <= 1

    def _quantise(self) -> str:
        coding, n, p = self.net.coding, self.first, self.p
        if coding.whole:
            return ""
        with np.errstate(divide="ignore"):
            lines = indented(floats("zero", coding.zero) + floats("factor", coding.factor))
        return (
            "/* Features as they were in training, as the net takes them. */\n"
            f"static inline void {p}quantise(const float features[{n}], {self.x} x[{n}]) {{\n{lines}    int i;\n"
            f"    for (i = 0; i < {n}; i++) {{\n        float z = (features[i] - zero[i]) * factor[i];\n"
            f"        if (!(features[i] - features[i] == 0.0f)) z = 0.0f; /* missing */\n"
            f"        if (z > {literal(coding.most)}) z = {literal(coding.most)};\n"
            f"        if (z < {literal(coding.least)}) z = {literal(coding.least)};\n"
            f"        x[i] = ({self.x})(z < 0.0f ? z - 0.5f : z + 0.5f);\n    }}\n}}\n"
        )

    # -- activations -----------------------------------------------------------------------------------------------

    def _activation(self, name: str) -> str:
        """From a sum that was shifted to a state."""
        p, T, most = self.p, self.T, self.net.most
        head = f"static inline {T} {p}{name}(int32_t t) {{\n"
        if name == "relu":
            return f"{head}    return ({T})(t < 0 ? 0 : t > {most} ? {most} : t);\n}}\n"
        cut = f"    return ({T})(t < -{most} ? -{most} : t > {most} ? {most} : t);\n}}\n"
        if name == "identity":
            return head + cut
        if name == "leaky_relu":
            # first cut, so that the product fits
            least = f"    if (t < -{most * 128}) t = -{most * 128};\n    if (t < 0) t = (t * {LEAK}) >> {LEAK_BITS};\n"
            return head + least + cut
        table, down = self.net.tables[name], 16 - self.net.bits
        lines = indented(numbers("int16_t", "values", table.values))
        step, mask = table.step, (1 << table.step) - 1
        half = f" + {(1 << down) >> 1}" if down else ""
        shift = f" >> {down}" if down else ""

        def between(t: str) -> str:
            return (
                f"    k = {t} >> {step};\n    v = values[k];\n"
                f"    v += ((values[k + 1] - v) * ({t} & {mask})) >> {step};\n"
            )

        head += f"{lines}    int32_t k, v;\n"
        if name == "sin":
            head += f"    t &= 65535;\n{between('t')}    v = (v{half}){shift};\n"
            return f"{head}    return ({T})(v > {most} ? {most} : v);\n}}\n"
        head += f"    int32_t a = t < 0 ? -t : t;\n    if (a > {table.most}) a = {table.most};\n{between('a')}"
        if name in ("tanh", "gauss", "sigmoid"):
            flip = "    if (t < 0) v = 32768 - v;\n" if name == "sigmoid" else ""
            end = f"    return ({T})(t < 0 ? -v : v);\n}}\n" if name == "tanh" else f"    return ({T})v;\n}}\n"
            return f"{head}{flip}    v = (v{half}){shift};\n    if (v > {most}) v = {most};\n{end}"
        up, back = 15 - table.fraction, table.fraction - self.net.unit_bits[name]
        line = f"    v = (v + {1 << (up - 1)}) >> {up};\n"
        line += "    t = (t < 0 ? 0 : t) + v;\n" if name == "softplus" else "    if (t < 0) t = -v;\n"
        if back:
            line += (
                f"    t = (t >> {back}) + ((t >> {back - 1}) & 1);\n"  # rounded, without a sum that could be too large
            )
        # the largest t and the table: their sum fits, since t was shifted or bounded below 2^31 - 2^16
        return head + line + cut

    # -- ticks -----------------------------------------------------------------------------------------------------

    def _parameters(self) -> str:
        n, room = self.first, self.layout.n_rows if self.direct else self.layout.n_slots
        given = f"const {self.x} x[{n}], " if self.direct else ""
        return f"{given}{self.T} s[{room}], int32_t y[{self.blueprint.n_outputs}]"

    def _ticks(self) -> str:
        body = "".join(self._turns())
        rows = self.layout.n_rows
        room = "" if self.layout.once else f"    {self.T} next[{rows}];\n"
        index = "".join(f"    int {name};\n" for name in ("r", "k") if f"{name}++" in body)
        head = f"static inline void {self.p}ticks({self._parameters()}) {{\n{room}{index}"
        names = ("x", "s", "y") if self.direct else ("s", "y")
        unused = "".join(f"    (void){name};\n" for name in names if not re.search(rf"\b{name}\b", body))
        return f"{self._sum()}{head}{unused}{body}}}\n"

    def _sum(self) -> str:
        p, T, found = self.p, self.T, ""
        if (self.net.shift < 0).any():
            found += (
                f"static inline int32_t {p}shifted(int32_t t, int k) {{\n    int32_t most;\n"
                "    if (k >= 0) return t >> k;\n"
                f"    most = {LIMIT} >> -k;\n    if (t > most) t = most;\n    if (t < -most) t = -most;\n"
                "    return t * (1 << -k);\n}\n\n"
            )
        if self.unrolled:
            return found
        shared = f"{self.up}_SHARED"
        wide = "(int32_t)" if self.net.bits == 16 else ""  # an int may have 16 bits
        counts = [block.count for block in self.layout.blocks if block.full]
        if counts:
            # many at a time: else half of the instructions are those of the loop
            by = 8 if max(counts) >= 32 else 4 if max(counts) >= 8 else 1
            adds = "".join(f"        t += {wide}{self.up}_AT({T}, w, {k}) * s[{k}];\n" for k in range(by))
            found += f"{shared} int32_t {p}sum(int32_t t, const {T} *w, const {T} *s, int n) {{\n"
            if by > 1:
                found += f"    for (; n >= {by}; n -= {by}) {{\n{adds}        w += {by};\n        s += {by};\n    }}\n"
            if by == 1 or any(count % by for count in counts):
                found += f"    for (; n > 0; n--, w++) t += {wide}{self.up}_AT({T}, w, 0) * *s++;\n"
            found += "    return t;\n}\n\n"
        if not all(block.full for block in self.layout.blocks):
            offset = sum((b.end - b.begin) * b.count for b in self.layout.blocks if b.full)
            shown = f"{p}weights[{offset} + e]" if offset else f"{p}weights[e]"
            found += (
                f"{shared} int32_t {p}sum_of(int32_t t, int r, const {T} *s) {{\n    int e, end = {p}at[r + 1];\n"
                f"    for (e = {p}at[r]; e < end; e++) t += {wide}{shown} * s[{p}from[e]];\n    return t;\n}}\n\n"
            )
        return found

    def _turns(self) -> Iterator[str]:
        once, first = self.layout.once, self.first
        live = np.arange(self.layout.n_slots) < first
        if self.blueprint.timing is not None:
            live[:] = True
        for turn in self.layout.turns:
            kept = [(a, b) for a, b in turn.rows if any(self._keeps(row) for row in range(a, b))]
            if self.unrolled:
                for _ in range(turn.times):
                    yield "".join(self._row(row, live) for a, b in turn.rows for row in range(a, b))
                    yield "" if once else "".join(
                        f"    s[{first + row}] = next[{row}];\n"
                        for a, b in kept for row in range(a, b) if self._keeps(row)
                    )  # fmt: skip
                    for a, b in turn.rows:
                        live[first + a : first + b] = True
                continue
            body = "".join(self._loop(a, b) for run in turn.rows for a, b in self._alike(*run))
            if not once:
                for run in kept:
                    for a, b in self._alike(*run):
                        if self._keeps(a):
                            body += f"    for (r = {a}; r < {b}; r++) s[{first} + r] = next[r];\n"
            yield f"    for (k = 0; k < {turn.times}; k++) {{\n{indented(body)}    }}\n" if turn.times > 1 else body

    def _alike(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Runs of rows that are given, kept, or both."""
        start = begin
        for row in range(begin + 1, end + 1):
            if row == end or self._role(row) != self._role(start):
                yield start, row
                start = row

    def _role(self, row: int) -> tuple[bool, bool, int]:
        given = row in self.net.sums
        # outputs that follow each other are given by one loop
        return given, self._keeps(row), row - self._output(row) if given else 0

    def _output(self, row: int) -> int:
        return int(np.flatnonzero(self.layout.outputs == self.first + row)[0])

    def _loop(self, begin: int, end: int) -> str:
        block, p = self.layout.block_of(begin), self.p
        if block.full:
            base = block.at - block.count * block.begin
            at = f"{base} + {block.count} * r" if base else f"{block.count} * r"
            source = f"s + {block.first}" if block.first else "s"
            if self.direct:
                inputs = block.first < self.first
                moved = block.first if inputs else block.first - self.first
                source = ("x" if inputs else "s") + (f" + {moved}" if moved else "")
            value = f"{p}sum({p}bias[r], {p}weights + {at}, {source}, {block.count})"
        else:
            value = f"{p}sum_of({p}bias[r], r, s)"
        given, kept, away = self._role(begin)
        if not given:
            line = f"{self._into('r')} = {self._active(block, self._shifted(value, begin, 'r'))};"
            return f"    for (r = {begin}; r < {end}; r++) {line}\n"
        into = f"y[r - {away}]" if away else "y[r]"
        if not kept:
            return f"    for (r = {begin}; r < {end}; r++) {into} = {value};\n"
        state = self._active(block, self._shifted("t", begin, "r"))
        return (
            f"    for (r = {begin}; r < {end}; r++) {{\n        int32_t t = {value};\n        {into} = t;\n"
            f"        {self._into('r')} = {state};\n    }}\n"
        )

    def _into(self, row: str) -> str:
        if not self.layout.once:
            return f"next[{row}]"
        if self.direct:
            return f"s[{row}]"
        return f"s[{self.first} + {row}]"

    def _shifted(self, value: str, row: int, shown: str | None = None) -> str:
        """The sum in the units of the activation."""
        k = int(self.net.shift[row])
        if shown is None or self._same_shift():
            return f"{value} >> {k}" if k > 0 else f"{self.p}shifted({value}, {k})" if k < 0 else value
        if (self.net.shift < 0).any():
            k_of = f"{self.p}shift[{shown}]"
            return f"{self.p}shifted({value}, {k_of})"
        return f"{value} >> {self.p}shift[{shown}]"

    def _row(self, row: int, live: np.ndarray) -> str:
        """One row without a loop."""
        net, layout = self.net, self.layout
        value, wide = f"(int32_t){int(net.bias[row])}", "(int32_t)" if net.bits == 16 else ""
        for slot, w in zip(layout.sources[row].tolist(), net.weights[row].tolist(), strict=True):
            if w and (live[slot] or layout.once):
                state = f"s[{slot}]"
                if self.direct:
                    state = f"x[{slot}]" if slot < self.first else f"s[{slot - self.first}]"
                value += f" {'-' if w < 0 else '+'} {wide}{abs(w)} * {state}"
        text, block = "", layout.block_of(row)
        if row in net.sums:
            text, value = f"    y[{self._output(row)}] = {value};\n", f"y[{self._output(row)}]"
        if self._keeps(row):
            text += f"    {self._into(str(row))} = {self._active(block, self._shifted(f'({value})', row))};\n"
        return text

    def _active(self, block: Block, value: str) -> str:
        return f"{self.p}{block.activation}({value})"

    # -- calls -----------------------------------------------------------------------------------------------------

    def _rest(self) -> str:
        """Outputs that are states, and those that are always 0."""
        lines = ""
        for o, slot in enumerate(self.layout.outputs.tolist()):
            row = slot - self.first
            if slot < 0:
                lines += f"    y[{o}] = 0;\n"
            elif row not in self.net.sums:
                lines += f"    y[{o}] = s[{row if self.direct else slot}];\n"
        return lines

    def _take(self, into: str) -> str:
        middle = f" - {self.net.coding.middle}" if self.net.coding.middle else ""
        value = f"x[i]{middle}"
        if self.x != self.T or middle:
            value = f"({self.T})({value})"
        return f"for (i = 0; i < {self.first}; i++) {into}[i] = {value};\n"

    def _run(self) -> str:
        p, n, slots = self.p, self.first, self.layout.n_slots
        head = (
            "/* The outputs of the net, before anything is made of them. */\n"
            f"static inline void {p}outputs(const {self.x} x[{n}], int32_t y[{self.blueprint.n_outputs}]) {{\n"
        )
        if self.direct:
            return f"{head}    {self.T} s[{max(self.layout.n_rows, 1)}];\n    {p}ticks(x, s, y);\n{self._rest()}}}\n"
        clear = "" if self.layout.once else f"    for (i = {n}; i < {slots}; i++) s[i] = 0;\n"
        take = f"    int i;\n    {self._take('s')}"
        return f"{head}    {self.T} s[{slots}];\n{take}{clear}    {p}ticks(s, y);\n{self._rest()}}}\n"

    def _steps(self) -> str:
        p, n, slots, outputs, timing = (
            self.p,
            self.first,
            self.layout.n_slots,
            self.blueprint.n_outputs,
            self.blueprint.timing,
        )
        assert timing is not None
        text = (
            "/* What the net remembers between steps. */\ntypedef struct {\n"
            f"    {self.T} s[{slots}]; /* inputs, then neurons */\n"
            f"    int32_t y[{outputs}];\n}} {p}state;\n\nstatic inline void {p}init({p}state *m) {{\n    int i;\n"
            f"    for (i = 0; i < {slots}; i++) m->s[i] = 0;\n    for (i = 0; i < {outputs}; i++) m->y[i] = 0;\n}}\n\n"
            f"/* Take in one step. */\nstatic inline void {p}step({p}state *m, const {self.x} x[{n}]) {{\n    int i;\n"
            f"    {self._take('m->s')}    for (i = 0; i < {timing.per_step}; i++) {p}ticks(m->s, m->y);\n}}\n\n"
        )
        held = f"The last step is held for {timing.delay} more ticks, until it has come to the outputs. " * (
            timing.delay > 0
        )
        later = f"    {p}state later = *m;\n" if timing.delay else ""
        name = "later." if timing.delay else "m->"
        hold = f"    for (i = 0; i < {timing.delay}; i++) {p}ticks(later.s, later.y);\n" if timing.delay else ""
        copy = "".join(
            f"    y[{o}] = {f'{name}s[{slot}]' if slot >= 0 and slot - n not in self.net.sums else f'{name}y[{o}]'};\n"
            for o, slot in enumerate(self.layout.outputs.tolist())
        )
        return (
            f"{text}/* The outputs after the steps so far, before anything is made of them. {held}*/\n"
            f"static inline void {p}outputs(const {p}state *m, int32_t y[{outputs}]) {{\n{later}"
            f"{'    int i;' + chr(10) if timing.delay else ''}{hold}{copy}}}\n"
        )
