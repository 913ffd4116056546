"""The installed version reproduces the golden record of behaviour, see `golden_behaviour.py`."""

import json
from functools import cache

import numpy as np
import pytest

import golden_behaviour as golden
from golden import deviation, load

#: Tolerance relative to the largest entry: training is in float32, and integers may differ by one unit.
ALLOWED = {"float64": 1e-6, "float32": 1e-4, "uint32": 0.0, "int8": 1e-2, "int16": 1e-4}
CASES, SLOW = [(kind, name) for kind, (names, _) in golden.KINDS.items() for name in names], [(), [pytest.mark.slow]]


@cache
def recorded():
    return load(golden.FILE) | json.loads(golden.FILE.with_suffix(".json").read_text(encoding="utf-8"))


@cache
def printed(slow):
    return dict(golden.commands([name for name in golden.COMMANDS if (name in golden.SLOW) == slow]))


def check(kind, name, values):
    for key, value in values.items():
        want = recorded()[f"{kind}/{name}/{key}"]
        assert value.shape == want.shape
        assert deviation(value, want) <= ALLOWED.get(key, ALLOWED[str(want.dtype)]), key


def same(got, want, where=""):  # keys in their order, types, texts and whole numbers; fractions nearly
    assert type(got) is type(want), where
    if isinstance(want, dict | list):
        assert list(got) == list(want) if isinstance(want, dict) else len(got) == len(want), where
        for key in want if isinstance(want, dict) else range(len(want)):
            same(got[key], want[key], f"{where}/{key}")
    else:
        assert got == (pytest.approx(want, rel=1e-4, abs=1e-9) if isinstance(want, float) else want), where


def test_the_record_has_the_cases_of_the_list():
    listed = {f"{kind}/{name}" for kind, name in CASES} | {f"command/{name}" for name in golden.COMMANDS}
    assert {"/".join(key.split("/")[:2]) for key in recorded()} == listed


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_values(kind, name):
    values, facts = golden.estimator(name) if kind == "estimator" else (golden.KINDS[kind][1](name), {})
    same(golden.masked(facts), golden.masked(recorded().get(f"{kind}/{name}", {})))
    check(kind, name, values)


@pytest.mark.parametrize("name", ["classes-adam", "numbers-lm", "sequences-mean"])
def test_any_number_of_threads_gives_the_same_bits(name):
    one, *others = (golden.estimator(name, **given)[0] for given in golden.THREADS)
    np.testing.assert_equal(others, [one, one])


@pytest.mark.parametrize("group", [pytest.param(k, marks=SLOW[k > 0]) for k in range(0, 200, 40)])
def test_nets_in_c_and_onnx(group, tmp_path):
    for name, outputs in golden.by_c(golden.NETS[group : group + 40], tmp_path).items():
        check("net", name, {"outputs": outputs})
        check("net", name, {"outputs": golden.by_onnx(name)})


@pytest.mark.slow
def test_whole_numbers_and_learners_in_c_have_the_bits_of_python(tmp_path):
    for name in golden.INTEGER_NETS:
        np.testing.assert_equal(golden.integer(name, compiled=True), golden.integer(name))
    for name in (name for name in golden.NET_STREAMS if "portable" in name):
        check("net-stream", name, golden.net_stream(name, tmp_path / "net.h"))


@pytest.mark.parametrize("name", [pytest.param(k, marks=SLOW[k in golden.SLOW]) for k in golden.COMMANDS])
def test_json_of_commands(name):
    same(printed(name in golden.SLOW)[name], golden.masked(recorded()[f"command/{name}"]))
