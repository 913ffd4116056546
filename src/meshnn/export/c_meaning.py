"""What the outputs of a net mean, in C: classes, probabilities, labels, values."""

from __future__ import annotations

from typing import NamedTuple

from meshnn.arrays import Array
from meshnn.export.blueprint import Blueprint
from meshnn.export.c_math import literal
from meshnn.export.c_text import floats, indented

__all__ = ["Answers", "answers"]


class Answers(NamedTuple):
    """Functions, the elementary ones that they call, and how they are called."""

    text: str
    calls: tuple[str, ...]
    usage: list[str]


def answers(blueprint: Blueprint, p: str, takes: str = "float", scale: Array | None = None) -> Answers:
    """Of a net whose function `net_outputs` gives floats, or whole numbers that count `scale`.

    `takes` is the type of the features.
    """
    return _Meaning(blueprint, p, takes, scale).answers()


class _Meaning:
    def __init__(self, blueprint: Blueprint, p: str, takes: str, scale: Array | None) -> None:
        self.blueprint, self.p, self.n, self.takes, self.scale = blueprint, p, blueprint.n_outputs, takes, scale
        timed = blueprint.timing is not None
        self.given = f"const {p}state *m" if timed else f"const {takes} x[{blueprint.n_inputs}]"
        self.passed = "m" if timed else "x"
        self.kind = "float" if scale is None else "int32_t"
        self.zero = "0.0f" if scale is None else "0"

    def answers(self) -> Answers:
        blueprint, usage = self.blueprint, self._begin()
        if blueprint.link in ("softmax", "logit"):
            return self._classes(usage)
        if blueprint.link == "sigmoid":
            return self._labels(usage)
        if blueprint.values:
            return self._values(usage)
        usage.append(f"    {self.p}outputs({self.passed}, y);           y: {self.kind}[{self.n}]" + self._counts())
        return Answers("", (), usage)

    def _counts(self) -> str:
        if self.scale is None:
            return ""
        shown = ", ".join(f"{v:.9g}" for v in self.scale[:20].tolist()) + " ..." * (len(self.scale) > 20)
        return f", to be multiplied by {shown}"

    def _begin(self) -> list[str]:
        blueprint, p, takes = self.blueprint, self.p, self.takes
        names = [f"  x[{k}]: {name}" for k, name in enumerate(blueprint.features)]
        what = "features" if blueprint.timing is None else "features of one step"
        how = "as they were in training" if takes == "float" or self.scale is None else "in whole numbers, see below"
        lines = [f"How to call it, x being {takes}[{blueprint.n_inputs}], {what} {how}:", *names]
        if blueprint.timing is None:
            return lines
        return [
            *lines,
            f"    static {p}state s;  {p}init(&s);  {p}step(&s, x) for each step; m being &s in what follows:",
        ]

    def _value(self, i: str = "i") -> str:
        """An output as a float."""
        if self.scale is None:
            return f"y[{i}]"
        if (self.scale == self.scale[0]).all():
            return f"(float)y[{i}] * {literal(self.scale[0])}"
        return f"(float)y[{i}] * counts[{i}]"

    def _scales(self) -> str:
        """A table for `_value`."""
        if self.scale is None or (self.scale == self.scale[0]).all():
            return ""
        return indented(floats("counts", self.scale))

    def _classes(self, usage: list[str]) -> Answers:
        p, n, C, passed = self.p, self.n, len(self.blueprint.classes), self.passed
        if self.blueprint.link == "logit":
            best, index = f"    return y[0] < {self.zero} ? 1 : 0;\n", ""
            begin = "    float v, e;\n"
            share = (
                f"    v = {self._value('0')};\n    e = @exp(v < 0.0f ? v : -v);\n"
                "    out[0] = (v < 0.0f ? e : 1.0f) / (1.0f + e);\n    out[1] = 1.0f - out[0];\n"
            )
        else:
            best = f"    for (i = 1; i < {n}; i++) {{\n        if (y[i] > y[k]) k = i;\n    }}\n    return k;\n"
            index, begin = "    int i, k = 0;\n", "    float most = 0.0f, total = 0.0f;\n    int i;\n"
            share = (
                f"    for (i = 0; i < {n}; i++) {{\n        out[i] = {self._value()};\n"
                f"        if (i == 0 || out[i] > most) most = out[i];\n    }}\n"
                f"    for (i = 0; i < {n}; i++) {{\n        out[i] = @exp(out[i] - most);\n"
                f"        total += out[i];\n    }}\n"
                f"    for (i = 0; i < {n}; i++) out[i] /= total;\n"
            )
        text = (
            f"/* The likeliest class: its number, from 0 on. */\nstatic inline int @predict({self.given}) {{\n"
            f"    {self.kind} y[{n}];\n{index}    @outputs({passed}, y);\n{best}}}\n\n"
            "/* The probability of each class. */\n"
            f"static inline void @probabilities({self.given}, float out[{C}]) {{\n"
            f"{self._scales()}    {self.kind} y[{n}];\n{begin}    @outputs({passed}, y);\n{share}}}\n"
        )
        shown = ", ".join(str(c) for c in self.blueprint.classes[:20]) + " ..." * (C > 20)
        usage += [f"    k = {p}predict({passed});             the number of the likeliest class of: {shown}"]
        usage += [f"    {p}probabilities({passed}, out);      out: float[{C}]"]
        return Answers(text.replace("@", p), ("exp",), usage)

    def _labels(self, usage: list[str]) -> Answers:
        p, n, passed = self.p, self.n, self.passed
        text = (
            f"/* Which labels there are: 1 or 0 of each. */\n"
            f"static inline void @predict({self.given}, uint8_t has[{n}]) {{\n"
            f"    {self.kind} y[{n}];\n    int i;\n    @outputs({passed}, y);\n"
            f"    for (i = 0; i < {n}; i++) has[i] = y[i] > {self.zero} ? 1 : 0;\n}}\n\n"
            "/* The probability of each label. */\n"
            f"static inline void @probabilities({self.given}, float out[{n}]) {{\n"
            f"{self._scales()}    {self.kind} y[{n}];\n    int i;\n    @outputs({passed}, y);\n"
            f"    for (i = 0; i < {n}; i++) {{\n        float v = {self._value()};\n"
            "        float e = @exp(v < 0.0f ? v : -v);\n"
            "        out[i] = (v < 0.0f ? e : 1.0f) / (1.0f + e);\n    }\n}\n"
        )
        usage += [f"    {p}predict({passed}, has);            has: uint8_t[{n}], 1 for each label that there is"]
        usage += [f"    {p}probabilities({passed}, out);      out: float[{n}]"]
        return Answers(text.replace("@", p), ("exp",), usage)

    def _values(self, usage: list[str]) -> Answers:
        p, n, passed, blueprint = self.p, self.n, self.passed, self.blueprint
        tables, scaled = self._scales(), self._value()
        if blueprint.link == "exp":
            scaled = f"{p}exp({scaled})"
        if blueprint.y_mean is not None and blueprint.y_scale is not None:
            if n > 1:
                tables += indented(floats("mean", blueprint.y_mean) + floats("scale", blueprint.y_scale))
                scaled = f"{scaled} * scale[i] + mean[i]"
            else:
                scaled = f"{scaled} * {literal(blueprint.y_scale[0])} + {literal(blueprint.y_mean[0])}"
        calls = ("exp",) if blueprint.link == "exp" else ()
        if n == 1:
            text = (
                f"/* The value, in the units of training. */\nstatic inline float {p}predict({self.given}) {{\n"
                f"    {self.kind} y[1];\n    {p}outputs({passed}, y);\n    return {scaled.replace('[i]', '[0]')};\n}}\n"
            )
            return Answers(text, calls, [*usage, f"    v = {p}predict({passed});             a float"])
        text = (
            f"/* The values, in the units of training. */\n"
            f"static inline void {p}predict({self.given}, float out[{n}]) {{\n{tables}    {self.kind} y[{n}];\n"
            f"    int i;\n    {p}outputs({passed}, y);\n    for (i = 0; i < {n}; i++) out[i] = {scaled};\n}}\n"
        )
        return Answers(text, calls, [*usage, f"    {p}predict({passed}, y);              y: float[{n}]"])
