"""Benchmarks over time: what is kept of a run, and the page."""

import importlib.util
import json
import re
import xml.dom.minidom
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("history", ROOT / "benchmarks" / "history.py")
history = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(history)


def run(day=1, times=5.0, processor="A & B", **more):
    """What run.py saves, cut down."""
    step = {"net": "3-5-2, 700", "ticks": 2, "times": times, "bar": 4.0, "microseconds": {"meshnn": 12.5}}
    return {
        "versions": {"jax": "1.0"},
        "machine": {"platform": "Linux", "processor": processor, "cores": 2},
        "time": f"2026-01-{day:02}T12:00:00",
        "steps": {"peak": {"GFLOP/s": 99.0}, "rows": [step]},
    } | more


def test_ratios_are_kept_and_times_are_not():
    found = run(
        mnist={"times peer": 2.5, "times one thread": 1.8, "rows": {"meshnn": {"seconds": 0.77}}},
        large={"torch": {"times torch": 7.0, "milliseconds": {"torch": 77.0}}, "rows": []},
        ticks=[{"net": "n", "ticks": 8, "forward over best forward-only": 1.0, "forward-only over adjoint": 6.0}],
        threads=[{"net": "n", "batch": 64, "speed-up": 1.9}],
        processes={"import, s": 0.77},
        calls=[{"what": "forward", "microseconds": 7.7, "bar": 9}],
        estimators={"x": {"rows": [
            {"what": "digits: times faster", "figure": 6.0, "bar": ">= 5"},
            {"what": "spirals: test accuracy", "figure": 0.99, "bar": ">= 0.9"},
            {"what": "spirals: slowest fit, s", "figure": 0.77, "bar": "<= 3"},
        ]}},
        quick=True,
    )  # fmt: skip
    line = history.line_of(found, "abc", "busy")
    assert line["ratios"] == {
        "A training step: 3-5-2, 700, 2 ticks": 5.0,
        "MNIST: times the faster peer": 2.5,
        "MNIST: two threads, times one": 1.8,
        "A million edges: times PyTorch": 7.0,
        "The method that is taken: n, 8 ticks": 1.0,
        "Forward over backward: n, 8 ticks": 6.0,
        "Two threads: n, 64": 1.9,
        "Whole fits: digits: times faster": 6.0,
    }
    assert "77" not in json.dumps(line)
    assert line["bars"]["A training step: 3-5-2, 700, 2 ticks"] == ">= 4"
    assert "Forward over backward: n, 8 ticks" not in line["bars"]
    assert (line["commit"], line["note"], line["machine"]) == ("abc", "quick, busy", "A & B, 2 cores")
    assert {group.partition(": ")[0] for group in line["ratios"]} == set(history.ABOUT)


def test_a_run_without_ratios_is_refused():
    with pytest.raises(ValueError, match="no ratios"):
        history.line_of(run(steps={}), "abc")


def test_a_run_is_added_once(tmp_path, capsys):
    bench, kept, page = tmp_path / "bench.json", tmp_path / "h.jsonl", tmp_path / "new" / "h.html"
    for day in (1, 1, 2):
        bench.write_text(json.dumps(run(day)))
        history.main(["--add", str(bench), "--history", str(kept), "--commit", f"c{day}", "--page", str(page)])
    assert [line["commit"] for line in history.read(kept)] == ["c1", "c2"]
    assert "are there already" in capsys.readouterr().out
    assert page.read_text().count("<circle") == 2
    for wrong, words in ((tmp_path / "none.json", "run `make bench` first"), (kept, "Extra data")):
        with pytest.raises(SystemExit):
            history.main(["--add", str(wrong), "--history", str(kept)])
        assert words in capsys.readouterr().err
    assert len(history.read(kept)) == 2


def test_the_page():
    """Points in order, joined on one kind of processor, coloured by their bar; nothing is fetched."""
    lines = [history.line_of(run(day, times, machine), f"c{day}") for day, times, machine in
             ((1, 5.0, "A"), (2, 3.0, "B"), (3, 6.0, "A"), (4, 3.5, "A & <b>"))]  # fmt: skip
    lines[1]["ratios"]["Two threads: n, 64"] = 1.9  # one run alone has it
    text = history.page(lines)
    (chart,) = re.findall(r"<svg[^>]*3-5-2.*?</svg>", text)
    xml.dom.minidom.parseString(chart)
    assert chart.count("<circle") == 4
    assert chart.count("var(--missed)") == 2
    assert chart.count("<polyline") == 1
    across = [float(x) for x in re.findall(r'cx="([\d.]+)"', chart)]
    up = [float(y) for y in re.findall(r'cy="([\d.]+)"', chart)]
    assert across == sorted(across)
    assert sorted(range(4), key=lambda k: -up[k]) == [1, 3, 0, 2]  # a larger ratio is further up
    assert "3.5 missed" in text
    assert "A &amp; &lt;b&gt;" in text
    assert "<b>, 2 cores" not in text
    assert not re.search(r"https?:|src=|@import|<script|<link", text)
    assert text.index("<h2>A training step") < text.index("<h2>Two threads") < text.index("<h2>Runs")
    assert "prefers-color-scheme: dark" in text


def test_what_is_kept_can_be_drawn():
    lines = history.read(history.HISTORY)
    assert lines
    assert all(value > 0 for line in lines for value in line["ratios"].values())
    assert history.page(lines).count("<circle") == sum(len(line["ratios"]) for line in lines)
