"""What the outputs of a net mean, in C: classes, probabilities, labels, values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshnn.export.c_math import literal
from meshnn.export.c_text import floats, indented
from meshnn.export.recipe import Recipe

__all__ = ["Answers", "answers"]


class Answers(NamedTuple):
    """Functions, the elementary ones that they call, and how they are called."""

    text: str
    calls: tuple[str, ...]
    usage: list[str]


def answers(recipe: Recipe, p: str) -> Answers:
    """Of a net whose function `net_outputs` gives floats."""
    given = f"const float x[{recipe.n_inputs}]" if recipe.timing is None else f"const {p}state *m"
    passed = "x" if recipe.timing is None else "m"
    usage = _begin(recipe, p)
    if recipe.link in ("softmax", "logit"):
        return _classes(recipe, p, given, passed, usage)
    if recipe.link == "sigmoid":
        return _labels(recipe, p, given, passed, usage)
    if not recipe.values:
        return Answers("", (), [*usage, f"    {p}outputs({passed}, y);           y: float[{recipe.n_outputs}]"])
    return _values(recipe, p, given, passed, usage)


def _begin(recipe: Recipe, p: str) -> list[str]:
    names = [f"  x[{k}]: {name}" for k, name in enumerate(recipe.features)]
    if recipe.timing is None:
        return [f"How to call it, x being float[{recipe.n_inputs}], features as they were in training:", *names]
    return [
        f"How to call it, x being float[{recipe.n_inputs}], features of one step as they were in training:",
        *names,
        f"    static {p}state m;  {p}init(&m);  {p}step(&m, x) for each step; m being &m in what follows:",
    ]


def _classes(recipe: Recipe, p: str, given: str, passed: str, usage: list[str]) -> Answers:
    n, C = recipe.n_outputs, len(recipe.classes)
    if recipe.link == "logit":
        best = "    return y[0] < 0.0f ? 1 : 0;\n"
        share = "    float e = @exp(y[0] < 0.0f ? y[0] : -y[0]);\n    float p = (y[0] < 0.0f ? e : 1.0f) / (1.0f + e);\n"
        share += "    out[0] = p;\n    out[1] = 1.0f - p;\n"
    else:
        best = f"    for (i = 1; i < {n}; i++) {{\n        if (y[i] > y[k]) k = i;\n    }}\n    return k;\n"
        share = (
            f"    for (i = 1; i < {n}; i++) {{\n        if (y[i] > most) most = y[i];\n    }}\n"
            f"    for (i = 0; i < {n}; i++) {{\n        out[i] = @exp(y[i] - most);\n        total += out[i];\n    }}\n"
            f"    for (i = 0; i < {n}; i++) out[i] /= total;\n"
        )
    index = "    int i, k = 0;\n" if recipe.link == "softmax" else ""
    more = "    float most, total = 0.0f;\n    int i;\n" if recipe.link == "softmax" else ""
    first = "    most = y[0];\n" if recipe.link == "softmax" else ""
    text = (
        f"/* The likeliest class: its number, from 0 on. */\nstatic inline int @predict({given}) {{\n"
        f"    float y[{n}];\n{index}    @outputs({passed}, y);\n{best}}}\n\n"
        f"/* The probability of each class. */\nstatic inline void @probabilities({given}, float out[{C}]) {{\n"
        f"    float y[{n}];\n{more}    @outputs({passed}, y);\n{first}{share}}}\n"
    )
    shown = ", ".join(str(c) for c in recipe.classes[:20]) + " ..." * (C > 20)
    usage += [f"    k = {p}predict({passed});             the number of the likeliest class of: {shown}"]
    usage += [f"    {p}probabilities({passed}, out);      out: float[{C}]"]
    return Answers(text.replace("@", p), ("exp",), usage)


def _labels(recipe: Recipe, p: str, given: str, passed: str, usage: list[str]) -> Answers:
    n = recipe.n_outputs
    text = (
        f"/* Which labels there are: 1 or 0 of each. */\nstatic inline void @predict({given}, uint8_t has[{n}]) {{\n"
        f"    float y[{n}];\n    int i;\n    @outputs({passed}, y);\n"
        f"    for (i = 0; i < {n}; i++) has[i] = y[i] > 0.0f ? 1 : 0;\n}}\n\n"
        f"/* The probability of each label. */\nstatic inline void @probabilities({given}, float out[{n}]) {{\n"
        f"    int i;\n    @outputs({passed}, out);\n    for (i = 0; i < {n}; i++) {{\n"
        f"        float e = @exp(out[i] < 0.0f ? out[i] : -out[i]);\n"
        f"        out[i] = (out[i] < 0.0f ? e : 1.0f) / (1.0f + e);\n    }}\n}}\n"
    )
    usage += [f"    {p}predict({passed}, has);            has: uint8_t[{n}], 1 for each label that there is"]
    usage += [f"    {p}probabilities({passed}, out);      out: float[{n}]"]
    return Answers(text.replace("@", p), ("exp",), usage)


def _values(recipe: Recipe, p: str, given: str, passed: str, usage: list[str]) -> Answers:
    n = recipe.n_outputs
    tables, scaled = "", "y[i]"
    if recipe.link == "exp":
        scaled = f"{p}exp(y[i])"
    if recipe.y_mean is not None and recipe.y_scale is not None:
        if n > 1:
            tables = indented(floats("mean", recipe.y_mean) + floats("scale", recipe.y_scale))
            scaled = f"{scaled} * scale[i] + mean[i]"
        else:
            scaled = f"{scaled} * {literal(recipe.y_scale[0])} + {literal(np.float64(recipe.y_mean[0]))}"
    calls = ("exp",) if recipe.link == "exp" else ()
    if n == 1:
        text = (
            f"/* The value, in the units of training. */\nstatic inline float {p}predict({given}) {{\n"
            f"    float y[1];\n    {p}outputs({passed}, y);\n    return {scaled.replace('y[i]', 'y[0]')};\n}}\n"
        )
        return Answers(text, calls, [*usage, f"    v = {p}predict({passed});             a float"])
    text = (
        f"/* The values, in the units of training. */\nstatic inline void {p}predict({given}, float y[{n}]) {{\n{tables}"
        f"    int i;\n    {p}outputs({passed}, y);\n    for (i = 0; i < {n}; i++) y[i] = {scaled};\n}}\n"
    )
    return Answers(text, calls, [*usage, f"    {p}predict({passed}, y);              y: float[{n}]"])
