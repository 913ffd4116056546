"""The study: points in processes with limits, what is kept of them, and what is made of it."""

import json
import sys
from dataclasses import asdict

import numpy as np
import pytest

from meshnn import Mesh
from meshnn.calibration import random_graph
from meshnn.errors import MemoryLimitError, MeshError
from meshnn.plan.prices import DEFAULT
from meshnn.scaling import point as point_module
from meshnn.scaling import runner
from meshnn.scaling.analysis import agreement, curves, disagreements, duration, prediction, winners
from meshnn.scaling.peers import PEERS, warm_up
from meshnn.scaling.point import main, measure, prediction_file, weights_of
from meshnn.scaling.report import put_into, write_report
from meshnn.scaling.runner import Limits, missing_peers, read_records, run
from meshnn.scaling.study import CONTESTANTS, NEEDS, OURS, SWEEPS, Graph, Point, Sweep, points_of, sweeps

PLENTY = Limits(120.0, 2**33)
SMALL = Graph("mesh", 3, 6, 3)


def sweep_of(*contestants, values=(2, 3)):
    return Sweep("ticks", "Ticks, small", "ticks", tuple((k, SMALL, k, 5) for k in values), contestants)


# -- what is measured ----------------------------------------------------------------------------------------------


def test_the_study_goes_as_far_as_it_says():
    assert {s.name for s in sweeps()} >= {"neurons", "edges", "density", "ticks", "outputs", "batch", "layered"}
    assert [SWEEPS["neurons"].nets[k][0] for k in (0, -1)] == [10, 1_000_000]
    assert [SWEEPS["ticks"].nets[k][0] for k in (0, -1)] == [1, 64]
    assert max(net[0] for net in SWEEPS["edges"].nets) > 1_000_000
    everybody = {point.contestant for point in points_of(sweeps())}
    assert everybody == set(CONTESTANTS) == set(OURS) | set(PEERS)
    assert set(NEEDS) == set(PEERS) - {"tensor"}


@pytest.mark.parametrize("quick", [False, True])
def test_points_have_a_key_each_and_come_back_from_plain_values(quick):
    points = points_of(sweeps(quick))
    assert len({point.key for point in points}) == len(points)
    assert all(Point.of(json.loads(json.dumps(asdict(point)))) == point for point in points)
    assert len(points_of(sweeps(quick=True))) < 40


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=lambda sweep: sweep.name)
def test_nets_are_what_they_are_named_for(sweep):
    for x, graph, ticks, batch in sweep.nets[:3]:
        if graph.hidden > 3000:
            continue
        t = graph.build()
        Mesh(t, max(ticks, 2))  # every output is reached
        real = {"neurons": t.n_hidden, "dense": t.n_hidden, "layered": t.n_hidden, "edges": t.n_edges, "ticks": ticks,
                "outputs": t.n_outputs, "batch": batch, "density": graph.density}  # fmt: skip
        assert real[sweep.name] == x


# -- peers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contestant", [name for name in PEERS if name != "sklearn"])
@pytest.mark.parametrize(("graph", "ticks"), [
    (Graph("mesh", 3, 6, 3, 0.7), 1), (Graph("mesh", 3, 6, 3, 0.7), 2), (Graph("mesh", 3, 6, 3, 0.7), 4),
    (Graph("random", 8, 12, 2, fan_in=3, inner=2), 3), (Graph("layered", 5, 7, 3), 2),
])  # fmt: skip
def test_peers_compute_the_same_loss(contestant, graph, ticks):
    pytest.importorskip(NEEDS.get(contestant, ("numpy",))[0])
    warm_up(contestant)
    t, rng = graph.build(), np.random.default_rng(0)
    X, y = rng.standard_normal((9, t.n_inputs), np.float32), rng.integers(0, t.n_outputs, 9)
    weights = weights_of(t)
    step = PEERS[contestant](t, graph.kind == "layered", ticks, X, y, weights)
    assert step() == step() == pytest.approx(Mesh(t, ticks, weights=weights).gradient(X, y)[0], rel=1e-4)


def test_sklearn_takes_a_step():
    t, rng = Graph("layered", 5, 7, 3).build(), np.random.default_rng(0)
    step = PEERS["sklearn"](t, True, 2, rng.standard_normal((9, 5), np.float32), np.arange(9) % 3, weights_of(t))
    warm_up("sklearn")
    assert step() is None


def test_peers_that_are_not_there_are_named(monkeypatch):
    monkeypatch.setattr(runner, "find_spec", lambda name: None if name == "jax" else object())
    assert missing_peers(["factored", "jax dense", "torch dense"]) == {"jax dense": NEEDS["jax dense"][1]}


# -- processes -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_in_processes_is_taken_up_again(tmp_path, monkeypatch):
    sweep = sweep_of("factored", "tensor")
    points = points_of((sweep,))
    told = []
    records = run(points, tmp_path, PLENTY, lambda *what: told.append(what))
    assert [done for done, _, _ in told] == [0, 1, 2, 3, 4]
    for record in records.values():
        assert record["status"] == "done", record
        assert record["seconds"] > 0
        assert record["memory"] >= 0
        assert (prediction(record, DEFAULT) is not None) == (record["point"]["contestant"] in OURS)
    same = [record["loss"] for record in records.values() if record["point"]["x"] == 3]
    assert same[0] == pytest.approx(same[1], rel=1e-4)
    assert not disagreements(sweep, records)

    measured = []

    def stands_in(point, out, limits):
        measured.append(point.key)
        stamp = runner.stamp_of(point.contestant)
        return {"status": "done", "seconds": 1.0, "memory": 1, "loss": 0.0, "stamp": stamp, "point": asdict(point)}

    monkeypatch.setattr(runner, "_measure", stands_in)
    assert run(points, tmp_path, PLENTY) == records
    assert not measured
    files = {point.key: tmp_path / "points" / f"{point.key}.json" for point in points}
    first, second, third, _ = (point.key for point in points)
    files[first].unlink()
    files[second].write_text(files[second].read_text()[:50])  # cut short
    files[third].write_text(json.dumps(records[third] | {"stamp": "another processor"}))
    run(points, tmp_path, PLENTY)
    assert measured == [first, second, third]
    assert set(read_records(tmp_path, points)) == set(files)


def test_what_is_too_slow_is_ended_and_larger_ones_are_not_tried(tmp_path):
    points = points_of((sweep_of("factored", values=(2, 3, 4)),))
    records = run(points, tmp_path, Limits(0.05, 2**33))  # Python alone takes longer to start
    assert [records[point.key]["status"] for point in points] == ["too slow", "not tried", "not tried"]
    assert "more than 0.05 s" in records[points[0].key]["note"]
    assert len(list((tmp_path / "points").iterdir())) == 1
    again = run(points, tmp_path, PLENTY)  # an end is a result
    assert again[points[0].key]["status"] == "too slow"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory of another process")
def test_what_does_not_fit_is_ended(tmp_path):
    points = points_of((sweep_of("factored"),))
    records = run(points, tmp_path, Limits(120.0, 10 * 2**20))  # Python and NumPy alone take more
    assert [records[point.key]["status"] for point in points] == ["did not fit", "not tried"]


def test_a_process_that_was_ended_leaves_its_prediction(tmp_path, monkeypatch):
    point = points_of((sweep_of("factored"),))[0]

    def ended(command, limits):
        prediction_file(tmp_path.__class__(command[-1])).write_text(
            '{"work": {"pulled": 5.0}, "lanes": 64, "bytes": 7}'
        )
        return ("did not fit", "more than 1.0 GiB"), ""

    monkeypatch.setattr(runner, "_watch", ended)
    record = runner._measure(point, tmp_path, PLENTY)
    assert (record["status"], record["bytes"]) == ("did not fit", 7)
    assert prediction(record, DEFAULT) > 0


@pytest.mark.parametrize(("error", "status"), [
    (MemoryError(), "did not fit"),
    (MemoryLimitError("the plan would need 5 TiB"), "did not fit"),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "did not fit"),
    (ValueError("something else"), "failed"),
])  # fmt: skip
def test_errors_become_results(tmp_path, monkeypatch, error, status):
    def fails(point, result):
        raise error

    monkeypatch.setattr(point_module, "measure", fails)
    given, result = tmp_path / "point.json", tmp_path / "result.json"
    given.write_text(json.dumps(asdict(points_of((sweep_of("factored"),))[0])))
    main([str(given), str(result)])
    record = json.loads(result.read_text())
    assert record["status"] == status
    assert record["note"]


def test_a_process_without_a_result_has_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_watch", lambda command, limits: (None, "Segmentation fault"))
    record = runner._measure(points_of((sweep_of("factored"),))[0], tmp_path, PLENTY)
    assert (record["status"], record["note"]) == ("failed", "Segmentation fault")


def test_a_point_in_this_process(tmp_path):
    point = Point("neurons", 20, Graph("random", 4, 20, 2, fan_in=2, inner=1), 3, 70, "adjoint")
    result = tmp_path / "result.json"
    found = measure(point, result)
    early = json.loads(prediction_file(result).read_text())
    assert early == {key: found[key] for key in early}  # written before it ran
    assert found["edges"] == random_graph(4, 20, 2, 2, 1).n_edges
    assert found["chosen"] in OURS


# -- what is made of it --------------------------------------------------------------------------------------------


def made_up(sweep, seconds, **more):
    """Records of a sweep from `{contestant: [seconds or status]}`."""
    records = {}
    for point in sweep.points():
        value = seconds[point.contestant][[net[0] for net in sweep.nets].index(point.x)]
        record = {"point": asdict(point), "loss": 0.5, "chosen": "factored"} | more
        if point.contestant in OURS:
            record |= {"work": {"pulled": 1e6}, "lanes": 64, "bytes": 1e6}
        if isinstance(value, str):
            record |= {"status": value, "note": "more than 1 GiB"}
            del record["loss"]
        else:
            record |= {"status": "done", "seconds": value, "memory": int(1e6 * value) + 1}
        records[point.key] = record
    return records


def test_who_wins():
    sweep = sweep_of("factored", "adjoint", "torch dense", "jax edges", values=(2, 3, 4))
    records = made_up(sweep, {"factored": [1e-3, 4e-3, "did not fit"], "adjoint": [2e-3, 2e-3, "too slow"],
                              "torch dense": [4e-3, 1e-3, 1.0], "jax edges": [5e-3, 9e-3, 2.0]})  # fmt: skip
    assert winners(sweep, records) == [
        ("2", CONTESTANTS["factored"], "factored, 1.0 ms", "PyTorch, dense, 4.0 ms", "4", "0.5"),
        ("3", CONTESTANTS["torch dense"], "factored, 4.0 ms", "PyTorch, dense, 1.0 ms", "0.25", "2"),
        ("4", CONTESTANTS["torch dense"], "-", "PyTorch, dense, 1.0 s", "-", "-"),
    ]
    assert duration(2e-6) == "2.0 us"


def test_agreement_is_predicted_over_measured():
    sweep = sweep_of("factored", "torch dense", values=(2, 3, 4))
    says = DEFAULT.seconds(point_work(), 5, 64)
    records = made_up(sweep, {"factored": [says, says / 2, "did not fit"], "torch dense": [1.0, 1.0, 1.0]})
    found = agreement(records, DEFAULT)
    assert sorted(found.ratios.values()) == pytest.approx([1.0, 2.0])
    assert (found.within, found.least, found.most) == pytest.approx((0.5, 1.0, 2.0))
    factored = curves(sweep, records, DEFAULT)[0]
    assert factored.predicted == pytest.approx([says] * 3)  # also where it did not fit
    assert factored.seconds[2] is None


def point_work():
    from meshnn.plan.prices import Work

    return Work(pulled=1e6)


@pytest.mark.slow
def test_report_and_figures(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    sweep = sweep_of("factored", "adjoint", "torch dense", values=(2, 3, 4))
    records = made_up(sweep, {"factored": [1e-3, 4e-3, "did not fit"], "adjoint": [2e-3, 2e-3, 3e-3],
                              "torch dense": ["missing", "missing", "missing"]})  # fmt: skip
    text = write_report((sweep,), records, DEFAULT, tmp_path)
    assert (tmp_path / "report.md").read_text() == text
    assert "| 2 | meshnn factored (forward-only) | factored, 1.0 ms |" in text
    assert (
        "meshnn factored (forward-only) did not fit at 4 (more than 1 GiB; it is predicted to need 976.6 KiB)" in text
    )
    assert "PyTorch" not in text.split("## Ticks")[1]
    for name in ("scaling-ticks", "scaling-predictions"):
        assert f"({name}.svg)" in text.replace("./", "")
        assert (tmp_path / f"{name}.svg").read_text().startswith("<?xml")
        pixels = image.imread(tmp_path / f"{name}.png")[..., :3]
        coloured = pixels.max(axis=2) - pixels.min(axis=2) > 0.3
        assert coloured.mean() > 0.0005  # lines, and not grey ones
    wrong = made_up(sweep, {"factored": [1e-3] * 3, "adjoint": [1e-3] * 3, "torch dense": [1e-3] * 3})
    next(iter(wrong.values()))["loss"] = 0.6
    with pytest.raises(MeshError, match="do not compute the same loss"):
        write_report((sweep,), wrong, DEFAULT, tmp_path)


def test_a_page_keeps_its_text(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- study -->\nold\n<!-- end of study -->\nafter\n")
    for _ in range(2):
        put_into(page, "new \\1\n")
    assert page.read_text() == "before\n<!-- study -->\n\nnew \\1\n\n<!-- end of study -->\nafter\n"
    page.write_text("nothing")
    with pytest.raises(MeshError, match="has no place for the study"):
        put_into(page, "new")
    with pytest.raises(MeshError, match="cannot read"):
        put_into(tmp_path / "other.md", "new")


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch, tmp_path):
    import typer
    from typer.testing import CliRunner

    from meshnn.scaling.command import scaling

    pytest.importorskip("matplotlib")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("meshnn.calibration.calibrate", lambda tell: DEFAULT)
    app = typer.Typer()
    app.command()(scaling)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.slow
def test_the_command(command, tmp_path, monkeypatch):
    sweep = sweep_of("factored", "jax dense")
    monkeypatch.setattr("meshnn.scaling.study.sweeps", lambda quick: (sweep,))
    monkeypatch.setattr(runner, "find_spec", lambda name: None)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("<!-- study --><!-- end of study -->")
    done = command("--quick", "--out", tmp_path / "out", "--page", page)
    assert done.exit_code == 0, done.output
    assert "NOT MEASURED: JAX, dense" in done.stderr
    assert "pip install" in done.stderr
    assert "report.md" in done.stdout
    assert "NOT" not in (tmp_path / "out" / "report.md").read_text().replace("Not measured: JAX", "")
    assert "**Not measured: JAX, dense" in page.read_text()
    assert (page.parent / "pictures" / "scaling-ticks.svg").exists()
    told = json.loads(command("--quick", "--out", tmp_path / "out", "--json").stdout)
    assert {record["status"] for record in told.values()} == {"done", "missing"}


@pytest.mark.parametrize(("words", "message"), [
    (["--only", "nothing"], "nothing"), (["--seconds", "0"], "greater than 0"), (["--memory", "-1"], "greater than 0"),
    (["--out", "FILE"], "is a file"),
])  # fmt: skip
def test_refusals(command, tmp_path, words, message):
    (tmp_path / "file").write_text("")
    done = command(*(tmp_path / "file" if word == "FILE" else word for word in words))
    assert isinstance(done.exception, MeshError)
    assert message in str(done.exception)


def test_ctrl_c(command, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("meshnn.scaling.runner.run", interrupted)
    done = command("--quick", "--out", tmp_path / "out")
    assert done.exit_code == 130
    assert "run the same command to go on" in done.stderr
