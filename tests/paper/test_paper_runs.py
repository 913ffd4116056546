"""Runs of experiments: resumed, in other processes, rejected, and reported."""

import html
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from meshnn import MeshError
from meshnn.cli import main
from meshnn.paper.drawing import canvas
from meshnn.paper.experiment import Experiment, Figure, Mean, PaperTable, TrialOptions, accuracy, grid, markdown
from meshnn.paper.report import write_report
from meshnn.paper.runner import EXPERIMENTS, locked, revision, run
from results import numbers_of, results_of


def toy_draw(records, folder):
    path = folder / "toy.png"
    with canvas(path, (2.0, 2.0)) as panels:
        panels[0, 0].plot([record["numbers"]["accuracy"] for record in records])
    return [Figure(path, "Toy")]


TOY = Experiment(
    "toy",
    "A toy",
    plan=lambda options: grid(trial=range(options.trials)),
    run=lambda parameters, options: {"accuracy": 1 / (2 + parameters["trial"])},
    tables=lambda records: [PaperTable("Toy", ("trials", "rate"), [(str(len(records)), str(accuracy(records)))])],
    draw=toy_draw,
)


@pytest.fixture
def toy(monkeypatch):
    """Return an experiment that takes no time."""
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    return TOY


# -- processes ---------------------------------------------------------------------------------------------------------


def reproduce(*arguments):
    command = [sys.executable, "-m", "meshnn", "reproduce", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)


@pytest.mark.slow
def test_other_processes_give_the_same_numbers(tmp_path):
    here = run(EXPERIMENTS["iris"], TrialOptions(trials=3), tmp_path / "here").folder
    done = reproduce("iris", "--trials", 3, "--jobs", 2, "--out", tmp_path / "there")
    assert done.returncode == 0, done.stderr
    assert numbers_of(here) == numbers_of(tmp_path / "there" / "iris")
    keys = [record["key"] for record in results_of(tmp_path / "there" / "iris")["trials"]]
    assert keys == ["0", "1", "2"]  # in the planned order


def test_more_trials_keep_those_that_are_there(toy, tmp_path):
    calls = []
    run(toy, TrialOptions(trials=1), tmp_path)
    for trials in (3, 2):
        outcome = run(toy, TrialOptions(trials=trials), tmp_path, report=lambda *done: calls.append(done[:2]))
    assert calls == [(1, 3), (2, 3), (3, 3), (2, 2)]
    assert outcome.tables[0].rows[0][0] == "2"
    for quick, count in ((False, "10"), (True, "2")):  # the defaults
        assert run(toy, TrialOptions(quick=quick), tmp_path / str(quick)).tables[0].rows[0][0] == count


def test_what_is_refused(toy, tmp_path):
    run(toy, TrialOptions(trials=1), tmp_path)
    with pytest.raises(MeshError, match=r"seed.*0.*seed.*1"):
        run(toy, TrialOptions(trials=1, seed=1), tmp_path)
    for text in ("{", "[]", "5"):
        (tmp_path / "toy" / "results.json").write_text(text)
        with pytest.raises(MeshError, match=r"results.json"):
            run(toy, TrialOptions(trials=1), tmp_path)
    with pytest.raises(MeshError, match="nothing"):
        write_report(tmp_path / "nothing")


def test_the_command_runs_trials_and_shows_tables(toy, capsys, tmp_path):
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["reproduce", "toy", "--trials", "2", "--jobs", "1", "--json", "--out", str(tmp_path)])
    assert json.loads(capsys.readouterr().out)["toy"][0]["rows"] == [["2", "0.4167 ± 1.0589"]]
    with pytest.raises(SystemExit):
        main(["reproduce", "report", "--out", str(tmp_path)])
    assert capsys.readouterr().out == f"report written to {tmp_path / 'report.html'}\n"


def test_an_interrupted_run_goes_on(toy, capsys, tmp_path, monkeypatch):
    def press(parameters, options):
        if parameters["trial"] == 1:
            raise KeyboardInterrupt
        return TOY.run(parameters, options)

    words = ["reproduce", "toy", "--trials", "3", "--jobs", "1", "--out", str(tmp_path)]
    monkeypatch.setitem(EXPERIMENTS, "toy", replace(TOY, run=press))
    with pytest.raises(SystemExit, match=r"^130$"):
        main(words)
    assert capsys.readouterr().err.startswith("meshnn: interrupted")
    (first,) = results_of(tmp_path / "toy")["trials"]
    assert not (tmp_path / "toy" / "table.md").exists()  # numbers are saved first
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    with pytest.raises(SystemExit, match=r"^0$"):
        main(words)
    found = results_of(tmp_path / "toy")["trials"]
    assert [record["key"] for record in found] == ["0", "1", "2"]
    assert found[0] == first  # not run again


# -- report ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_report_holds_all_there_is_and_needs_nothing_else(tmp_path):
    for protocol in ("ours", "paper"):
        run(EXPERIMENTS["iris"], TrialOptions(trials=2, protocol=protocol), tmp_path)
    run(EXPERIMENTS["equivalence"], TrialOptions(trials=2), tmp_path)
    page = html.unescape(write_report(tmp_path).read_text())
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(source.startswith(("data:image/", "#")) for source in sources)
    assert sum(source.startswith("data:image/") for source in sources) == 3
    for tag in ("section", "table", "figure", "ul"):
        assert len(re.findall(rf"<{tag}\b", page)) == page.count(f"</{tag}>") > 0
    for folder in ("iris", "iris-paper", "equivalence"):
        table = (tmp_path / folder / "table.md").read_text()
        for cell in re.findall(r"(?<=\| )[^|\n]+(?= \|)", table):
            assert cell in page, cell


def test_tables_and_means():
    mean = Mean.of([0.9, 0.95, 1.0])
    assert str(mean) == "0.9500 ± 0.1242"  # t = 4.3027 with two degrees of freedom
    assert str(Mean.of([0.5])) == "0.5000"
    assert "a \\| b" in markdown([PaperTable("t", ("x",), [("a | b",)])])
    found = revision()
    assert found is None or re.fullmatch(r"[0-9a-f]{40}\+?", found)


def test_one_run_at_a_time(toy, tmp_path):
    with locked(tmp_path / "toy"), pytest.raises(MeshError, match=r"results.json"):
        run(toy, TrialOptions(trials=1), tmp_path)
    run(toy, TrialOptions(trials=1), tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["trials"][0].pop("numbers"),
        lambda d: d["trials"][0].update(numbers=5),
        lambda d: d["trials"].append(5),
        lambda d: d["trials"][0]["numbers"].update(accuracy=None),
        lambda d: d.pop("config"),
        lambda d: d.update(experiment="synthetic"),
    ],
)
def test_damaged_results_are_refused_by_name(change, toy, tmp_path):
    run(toy, TrialOptions(trials=1), tmp_path)
    path = tmp_path / "toy" / "results.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(MeshError, match=r"results\.json"):
        run(toy, TrialOptions(trials=1), tmp_path)
