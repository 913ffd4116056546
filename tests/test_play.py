"""`meshnn play` without a browser: edits, orders, tables, links, files, and who is let in."""

import http.client
import importlib.util
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="starlette is not there: meshnn play is not tested")
pytest.importorskip("websockets", reason="websockets is not there: meshnn play is not tested")

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from commands import meshnn
from meshnn import Mesh, MeshError, Topology, load
from meshnn.play import edits
from meshnn.play.bench import PlaySession
from meshnn.play.data import SETS, Table, built_in, drift
from meshnn.play.frames import unpacked
from meshnn.play.outputs import python_of
from meshnn.play.server import new_server
from meshnn.play.state import checked

ASSETS = Path(importlib.util.find_spec("meshnn.play").origin).parent / "assets"


class Page:
    """A bench and what a page would know of it."""

    def __init__(self, *given):
        self.bench = PlaySession(*given)
        self.heard = []
        self.do("hello")

    def do(self, order, **fields):
        found = [json.loads(m) if isinstance(m, str) else unpacked(m)[0] for m in
                 self.bench.receive(json.dumps({"do": order} | fields))]  # fmt: skip
        self.heard += found
        return found

    def refused(self, order, **fields):
        (found,) = [m for m in self.do(order, **fields) if m["kind"] == "error"]
        return found["text"]

    def last(self, kind):
        return [m for m in self.heard if m["kind"] == kind][-1]

    @property
    def edges(self):
        return edits.drawing_of(self.bench.mesh, self.bench.names).edges

    def learn(self, steps):
        self.do("run", on=True)
        for _ in range(steps):
            list(self.bench._learn(1))


@pytest.fixture
def page():
    return Page()


SEPARABLE = "a,b,kind\n" + "".join(f"{k % 17 - 8},{k % 5},{'left' if k % 17 < 8 else 'right'}\n" for k in range(170))


# -- edits


def test_edges_and_neurons_come_and_go_and_come_back(page):
    before = page.edges
    page.do("neuron", add=True, bare=True)
    assert page.last("born")["id"] == "h5"
    page.do("edge", add=True, src="i0", dst="h5")
    page.do("edge", add=True, src="h5", dst="h5")
    page.do("edge", add=False, src="h1", dst="h0")
    page.do("neuron", add=False, id="h2")
    names = page.last("graph")["names"]
    assert "h5" in names
    assert "h2" not in names
    assert ("h5", "h5") in page.edges
    assert not any("h2" in pair for pair in page.edges)
    after = page.edges
    for _ in range(5):
        page.do("undo")
    assert page.edges == before
    assert page.refused("undo") == "there is nothing to undo"
    for _ in range(5):
        page.do("redo")
    assert page.edges == after
    assert page.last("graph")["redo"] == 0


def test_a_new_edge_or_neuron_does_not_change_what_the_net_computes(page):
    X = page.bench.data.X
    before = page.bench.mesh.forward(X)
    page.do("neuron", add=True)
    np.testing.assert_allclose(page.bench.mesh.forward(X), before, atol=1e-12)
    page.do("edge", add=True, src="h0", dst="h0")
    np.testing.assert_allclose(page.bench.mesh.forward(X), before, atol=1e-12)
    page.do("neuron", add=True, bare=True)
    page.do("edge", add=True, src="i1", dst="h6")  # nobody listens to it: at 0 it would never learn
    page.do("edge", add=True, src="h6", dst="o0")
    assert page.edges["i1", "h6"] != 0
    assert page.edges["h6", "o0"] == 0
    np.testing.assert_allclose(page.bench.mesh.forward(X), before, atol=1e-12)


@pytest.mark.parametrize("solver", ["adam", "lm", "stream"])
def test_figures_are_of_the_net_that_is_seen(page, solver):
    page.do("data", name="spirals")
    page.do("set", solver=solver)
    page.learn(20)
    page.do("run", on=False)
    bench = page.bench
    loss = bench.samples.evaluate(bench.mesh, 1)[0]
    if solver == "lm":  # no penalty in it; the others say what a sample was before it was learned
        assert bench.told.loss == pytest.approx(loss)
    page.do("edge", add=True, src="o0", dst="o1")  # with weight 0
    assert page.last("frame")["loss"] == pytest.approx(loss)
    page.do("neuron", add=False, id="h0")
    assert page.last("frame")["loss"] == pytest.approx(bench.samples.evaluate(bench.mesh, 1)[0]) != loss
    page.do("undo")
    assert page.last("frame")["loss"] == pytest.approx(loss)
    page.do("set", ticks=2)
    assert page.last("frame")["loss"] == pytest.approx(bench.samples.evaluate(bench.mesh, 1)[0]) != loss


def test_the_first_row_is_row_0(page):
    seen = page.bench.sample
    page.do("sample", index=0)
    np.testing.assert_allclose(page.bench.sample, seen)
    assert "row must be at most 999" in page.refused("sample", index=1000)


@pytest.mark.parametrize("solver", ["adam", "lm", "stream", "stream-adam"])
def test_what_stays_keeps_what_it_has_learned(page, solver):
    page.do("set", solver=solver)
    page.learn(4)
    now = page.edges
    page.do("edge", add=False, src="h0", dst="o0")
    assert page.edges == {pair: w for pair, w in now.items() if pair != ("h0", "o0")}
    page.learn(3)
    learned = page.edges
    assert learned != {pair: now[pair] for pair in learned}
    page.do("undo")  # the edge comes back as it was, the others go on from where they are
    assert page.edges == learned | {("h0", "o0"): now["h0", "o0"]}
    page.do("activation", id="h3", name="relu")
    page.do("set", ticks=4)
    page.do("neuron", add=False, id="h1")
    done = page.bench.learner.done
    page.learn(2)
    assert page.bench.learner.done == done + 2
    assert all(np.isfinite(w) for w in page.edges.values())


@pytest.mark.parametrize("solver", ["adam", "lm", "stream", "stream-adam"])
def test_any_edits_in_any_order_can_be_undone_while_it_learns(solver):
    rng = np.random.default_rng(5)
    page = Page()
    page.do("set", solver=solver)
    first, ticks = page.bench.names, page.bench.mesh.ticks
    edges = set(page.edges)
    for _ in range(30):
        names = page.bench.names
        src, dst = (str(name) for name in rng.choice(names, 2))
        orders = [
            ("edge", {"add": bool(rng.integers(2)), "src": src, "dst": dst}),
            ("neuron", {"add": bool(rng.integers(2)), "id": dst}),
            ("grow", {}),
            ("prune", {}),
            ("activation", {"id": src, "name": str(rng.choice(["relu", "sin", "sigmoid"]))}),
            ("set", {"ticks": int(rng.integers(1, 6))}),
        ]
        order, fields = orders[rng.integers(len(orders))]
        page.do(order, **fields)
        page.learn(1)
        assert page.bench.running, page.last("error")
        assert page.last("frame")["version"] == page.last("graph")["version"]
    count = page.last("graph")["undo"]
    assert count >= 10
    for k in range(count):
        page.do("undo")
        if k % 3 == 0:
            page.learn(1)
    assert (page.bench.names, page.bench.mesh.ticks, set(page.edges)) == (first, ticks, edges)
    assert set(page.bench.mesh.activations[:5]) == {"tanh"}


def test_moments_of_adam_go_with_their_edges(page):
    page.learn(3)
    first = dict(zip(page.edges, page.bench.learner.solver.optimizer.first.tolist(), strict=True))
    page.do("neuron", add=False, id="h2")
    page.do("neuron", add=True)
    now = dict(zip(page.edges, page.bench.learner.solver.optimizer.first.tolist(), strict=True))
    kept = [pair for pair in now if pair in first]
    assert kept
    assert all(now[pair] == first[pair] for pair in kept)
    assert not any(now[pair] for pair in now if "h5" in pair)


@pytest.mark.parametrize(("order", "words"), [
    ({"order": "edge", "add": True, "src": "h0", "dst": "i0"}, "would be dead"),
    ({"order": "edge", "add": True, "src": "h0", "dst": "h1"}, "already"),
    ({"order": "edge", "add": True, "src": "h0", "dst": "h77"}, "no neuron 'h77'"),
    ({"order": "edge", "add": False, "src": "h0", "dst": "h0"}, "no edge from h0 to h0"),
    ({"order": "neuron", "add": False, "id": "o0"}, "only hidden neurons"),
    ({"order": "activation", "id": "o0", "name": "relu"}, "not a hidden neuron"),
    ({"order": "activation", "id": "h0", "name": "step"}, "activation"),
    ({"order": "set", "ticks": 0}, "ticks"),
    ({"order": "set", "rate": "fast"}, "rate"),
    ({"order": "set", "solver": "magic"}, "solver"),
    ({"order": "data", "name": "../../etc/passwd"}, "data set"),
    ({"order": "sample", "point": [1, 2, 3]}, "2 numbers"),
    ({"order": "export", "what": "exe"}, "file"),
    ({"order": "table"}, "no table yet"),
    ({"order": "edge"}, "makes no sense"),
    ({"order": "__init__"}, "no order"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence_and_changes_nothing(page, order, words):
    before = page.edges, page.bench.mesh.ticks, page.bench.solver
    text = page.refused(order.pop("order"), **order)
    assert words in text
    assert "\n" not in text
    assert (page.edges, page.bench.mesh.ticks, page.bench.solver) == before


@pytest.mark.parametrize("message", ["", "{", "[]", "3", "null", '{"do": 3}', '{"do": null}', "[" * 5000, '"x"'])
def test_messages_that_are_no_orders(page, message):
    (answer,) = page.bench.receive(message)
    assert json.loads(answer)["kind"] == "error"


def test_an_output_keeps_its_last_way_from_an_input(page):
    page.do("new", graph="none")
    for src in ("i0", "i1"):
        page.do("edge", add=False, src=src, dst="o0")
    assert "reaches output 0" in page.refused("edge", add=False, src="b", dst="o0")
    assert ("b", "o0") in page.edges


def test_the_score_of_an_absent_edge_is_the_gradient_that_it_then_has():
    page = Page()
    page.do("data", name="iris")  # few samples: all of them count
    page.do("scores", src="h0", dst="h0")
    ((src, dst, score),) = page.last("scores")["edges"]
    assert (src, dst) == ("h0", "h0")
    page.do("edge", add=True, src="h0", dst="h0")
    bench = page.bench
    _, grad = bench.mesh.gradient(bench.data.X, bench.data.y)
    at = list(page.edges).index(("h0", "h0"))
    assert abs(score) > 1e-6
    np.testing.assert_allclose(grad[at], score, rtol=1e-9)


def test_grow_and_prune_keep_to_the_budget(page):
    page.do("scores")
    best = page.last("scores")["edges"][0]
    count = len(page.edges)
    page.do("set", budget=count + 2)
    page.do("grow")
    assert len(page.edges) == count + 2
    assert page.edges[best[0], best[1]] == 0
    assert "budget" in page.refused("grow")
    assert "budget" in page.refused("edge", add=True, src="h4", dst="h4")
    assert "budget" in page.refused("neuron", add=True)
    page.do("set", budget=40)
    page.do("prune")
    assert len(page.edges) == 40
    assert "the others" not in page.last("said")["text"]
    page.do("undo")
    page.do("set", budget=1)
    page.do("prune")  # as far as it goes
    assert "the others are on the last way to an output" in page.last("said")["text"]
    page.do("undo")
    assert len(page.edges) == count + 2


def test_what_a_solver_cannot_follow_is_refused_and_all_is_as_it_was(page, monkeypatch):
    page.do("set", solver="lm")
    page.learn(2)
    page.do("prune")
    page.learn(2)
    before, ticks = page.edges, page.bench.mesh.ticks
    monkeypatch.setattr("meshnn.play.learners.MOST_WORK", 0.0)
    rewire = page.bench.learner.rewire
    tried = []

    def follow(growth, change):  # refuses what is new, and takes what was
        tried.append(change)
        if len(tried) % 2 == 0:
            monkeypatch.setattr("meshnn.play.learners.MOST_WORK", 1e18)
        rewire(growth, change)
        monkeypatch.setattr("meshnn.play.learners.MOST_WORK", 0.0)

    monkeypatch.setattr(page.bench.learner, "rewire", follow)
    assert "take adam" in page.refused("undo")
    assert "take adam" in page.refused("neuron", add=True)
    assert "take adam" in page.refused("set", ticks=5)
    assert (page.edges, page.bench.mesh.ticks, len(tried)) == (before, ticks, 6)
    assert "take adam" in page.refused("data", name="circles")
    assert page.bench.data.name == "moons"
    assert page.edges == before
    page.learn(1)
    assert page.last("graph")["undo"] == 1


def test_a_new_net_can_be_undone(page):
    page.do("new", graph="none")
    page.do("set", ticks=1)
    page.learn(2)
    before = page.edges
    page.do("new", graph="layered", hidden=4)  # takes two ticks
    assert page.bench.mesh.ticks > 1
    page.learn(2)
    after = page.edges
    page.do("undo")
    assert page.edges == before
    assert page.bench.mesh.ticks == 1
    page.learn(1)
    page.do("redo")
    assert page.edges == after
    page.do("undo")
    page.do("undo")
    page.do("undo")
    assert len(page.edges) == 61
    assert page.last("settings")["ticks"] == 3


def test_new_weights_can_be_undone(page):
    page.learn(3)
    before = page.edges
    page.do("reset", seed=3)
    assert page.edges != before
    page.do("undo")
    assert page.edges == before


# -- learning


def test_lm_separates_what_can_be_separated(page):
    page.do("csv", name="kinds.csv", text=SEPARABLE)
    page.do("set", solver="lm")
    for _ in range(20):
        page.do("step")
    assert page.last("frame")["rate"] > 0.95
    assert page.last("frame")["test"] > 0.95
    assert page.last("settings")["running"] is False


def test_a_stream_follows_its_drift(page):
    page.do("data", name="drift")
    assert page.last("settings")["solver"] == "stream"
    for _ in range(400):
        list(page.bench._learn(10))
    assert page.bench.learner.done == 4000
    assert page.bench.told.rate > 0.85  # a fifth of a turn: a border that stood still would be wrong by now
    X, y = drift(1000, 4000 - 1000)
    seen = page.bench.data.scaling.inputs(X)
    assert (page.bench.mesh.forward(seen).argmax(axis=1) == y).mean() > 0.8


def test_lm_on_too_much_is_refused_and_the_solver_stays(page):
    page.do("data", name="digits")
    assert len(page.edges) == 1000
    assert "take adam" in page.refused("set", solver="lm")
    assert page.bench.solver == "adam"
    page.learn(1)


def test_it_goes_on_only_while_it_runs_and_waits_for_the_page(page):
    bench = page.bench
    assert bench.advance() == []
    page.do("set", pace=0)
    page.do("run", on=True)
    bench.last_frame = 0.0
    while bench.awaited < 2:
        bench.advance()
    for _ in range(5):
        bench.last_frame = 0.0
        assert bench.advance() == []  # two frames are under way: it learns, and says nothing
    page.do("ack")
    bench.last_frame = 0.0
    assert bench.advance() != []
    page.do("run", on=False)
    assert bench.waits > 1


# -- tables


@pytest.mark.parametrize("text", [
    "a,b,c\n1,2,x\n3,,y\n5,6,x\n1,2,y\n3,4,x\n",  # a gap
    "a,b,c\n1,inf,x\n2,3,y\n2,4,y\n3,3,x\n1,3,y\n",
    "a,a,c\n1,2,x\n",
    "a;b,c\n1,2,3\n",
    "",
])  # fmt: skip
def test_bad_tables_are_refused_in_the_words_of_fit(page, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text(text)
    by_fit = meshnn("fit", "bad.csv", "--target", "c")
    assert by_fit.returncode == 2
    said = page.refused("csv", name="bad.csv", text=text, target="c")
    assert by_fit.stderr.strip().splitlines()[-1].startswith(f"meshnn: {' '.join(said.split())}")
    assert page.bench.data.name == "moons"


def test_a_table_that_was_refused_can_be_mended(page):
    page.do("csv", name="gaps.csv", text="a,b,c\n" + "1,2,x\n3,,y\n5,6,x\n" * 5)
    assert page.last("table")["columns"] == ["a", "b", "c"]
    page.do("table", target="c", impute=True)
    assert page.last("data")["title"] == "gaps.csv"
    assert page.bench.data.features == ("a", "b")
    page.do("table", target="c", drop=["b"])
    assert page.bench.data.features == ("a",)
    page.do("table", target="a", impute=True)
    assert page.bench.data.target == "a"


def test_numbers_are_regressed(page):
    rows = "".join(f"{k / 7:.3f},{k % 4},{k * 0.37 + k % 4:.4f}\n" for k in range(60))
    page.do("csv", name="numbers.csv", text="a,b,y\n" + rows)
    page.do("set", solver="lm")
    for _ in range(10):
        page.do("step")
    assert page.last("frame")["test"] > 0.99
    assert page.last("scatter")["target"] == "y"
    page.do("export", what="mesh")


def test_only_tables_of_some_size_come_through_the_page():
    with pytest.raises(MeshError, match=r"not a \.csv"):
        Table.parse("x.exe", "a,b\n1,2\n")
    with pytest.raises(MeshError, match="expected at most 5,000,000"):
        Table.parse("x.csv", "a" * 5_000_001)
    assert Table.parse("../../x/y.csv", "a,b\n1,2\n").name == "y.csv"


def test_a_table_of_the_command_line(tmp_path):
    file = tmp_path / "kinds.csv"
    file.write_text(SEPARABLE)
    page = Page(file, "kind")
    assert page.last("data")["classes"] == ["left", "right"]
    assert page.heard[0]["table"]["text"] == SEPARABLE
    page = Page(tmp_path / "none.csv")
    assert "none.csv" in page.last("error")["text"]
    assert page.last("data")["name"] == "moons"


# -- links and files


def state_of(page):
    """As the page makes it of what it was told."""
    graph, settings, data = page.last("graph"), page.last("settings"), page.last("data")
    first = graph["inputs"] + graph["bias"]
    hidden = graph["names"][first : len(graph["names"]) - graph["outputs"]]
    weights = page.bench.mesh.weights.tolist()
    table = page.bench.table
    source = {"set": data["name"]}
    if data["name"] == "table":
        kept = {"name": table.name, "text": table.text, "target": table.target}
        source = {"table": kept | {"impute": False, "drop": []}}
    return {
        "v": 1, "data": source, "seed": data["seed"], "done": page.bench.learner.done,
        **{name: settings[name] for name in ("ticks", "solver", "rate", "budget", "pace")},
        **{name: graph[name] for name in ("inputs", "outputs", "bias")},
        "hidden": [[name, graph["activations"][k]] for k, name in enumerate(hidden)],
        "edges": [[s, d, w] for s, d, w in zip(graph["src"], graph["dst"], weights, strict=True)],
    }  # fmt: skip


@pytest.mark.parametrize("table", [False, True])
def test_a_link_restores_all_of_it(page, table):
    if table:
        page.do("csv", name="kinds.csv", text=SEPARABLE, target="kind")
    else:
        page.do("data", name="circles", seed=7)
    page.do("set", solver="lm", ticks=4, budget=500)
    page.do("neuron", add=True)
    page.do("neuron", add=False, id="h1")
    page.do("activation", id="h5", name="sin")
    page.learn(3)
    page.do("run", on=False)
    state = json.loads(json.dumps(state_of(page)))
    other = Page()
    other.do("restore", state=state)
    assert other.edges == page.edges
    assert state_of(other) == state
    assert other.bench.learner.done == 3
    np.testing.assert_array_equal(
        other.bench.mesh.forward(other.bench.data.X), page.bench.mesh.forward(page.bench.data.X)
    )
    other.learn(1)


def damaged():
    state = state_of(Page())
    yield None
    yield []
    yield state | {"v": 2}
    for name in state:
        yield {key: value for key, value in state.items() if key != name}
        for wrong in (None, -1, "x", [], {}, 1e400, [[0, 0, "x"]], [["h0", "tanh"], ["h0", "tanh"]]):
            yield state | {name: wrong}
    yield state | {"edges": [*state["edges"], state["edges"][0]]}
    yield state | {"edges": [[0, 99, 1.0]]}
    yield state | {"hidden": [["i0", "tanh"]]}
    yield state | {"hidden": [["h0", "evil"]]}
    yield state | {"edges": [[0, 1, float("nan")]]}
    yield state | {"data": {"table": {"name": "x.csv", "text": "a,b\n1,2\n", "target": 3, "impute": 0, "drop": "x"}}}
    yield state | {"data": {"set": "iris"}}


def test_damaged_links_are_refused_in_a_sentence(page):
    before, count = page.edges, 0
    for state in damaged():
        text = page.bench.receive(json.dumps({"do": "restore", "state": state}))
        kinds = [json.loads(m)["kind"] for m in text if isinstance(m, str)]
        if "error" in kinds:
            count += 1
            assert "\n" not in json.loads(text[-1])["text"]
            assert page.edges == before
        else:
            page = Page()  # what was wrong was none of what counts, such as a tick more
    assert count > 80
    with pytest.raises(MeshError, match="copy it again, whole"):
        checked({})


def test_files_hold_what_is_on_the_bench(page, tmp_path):
    page.learn(5)
    for what, name in (("mesh", "moons.mesh"), ("c", "moons.h")):
        (message,) = page.bench.receive(json.dumps({"do": "export", "what": what}))
        head, arrays = unpacked(message)
        assert head["name"] == name
        (tmp_path / name).write_bytes(arrays["content"].tobytes())
    model = load(tmp_path / "moons.mesh")
    data = page.bench.data
    answers = np.array(data.classes)[page.bench.mesh.forward(data.X).argmax(axis=1)]
    np.testing.assert_array_equal(model.predict(data.raw[: len(data.X)]), answers)
    assert "moons" in (tmp_path / "moons.h").read_text()


def test_the_lines_of_python_make_the_same_net(page):
    page.do("set", solver="lm")
    page.do("edge", add=False, src="h1", dst="h0")
    page.do("python")
    lines = page.last("python")["text"]
    assert len(lines.splitlines()) <= 10
    found = {}
    exec(lines.replace("random_state=0, solver", "random_state=0, max_epochs=3, solver"), found)
    bench = page.bench
    assert found["topology"] == bench.mesh.topology
    np.testing.assert_array_equal(found["X"], bench.data.raw[: len(bench.data.X)])
    assert found["model"].mesh_.activations == bench.mesh.activations


def test_the_lines_of_python_learn_as_long_if_that_was_long(page):
    data, mesh = page.bench.data, page.bench.mesh
    assert "max_epochs=526" in python_of(mesh, data, "adam", 0.01, 526)
    assert "max_epochs=2000" in python_of(mesh, data, "adam", 0.01, 50_000)
    assert "max_epochs" not in python_of(mesh, data, "adam", 0.01, 3) + python_of(mesh, data, "lm", 0.01, 526)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["lm", "adam", "stream", "stream-adam"])
@pytest.mark.parametrize("name", [*SETS, "table"])
def test_the_lines_of_python_run(name, solver, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("kinds.csv").write_text(SEPARABLE)
    if name == "table":
        table = Table.read(Path("kinds.csv"))
        table.target = "kind"
        data = table.chosen(0)
    else:
        data = built_in(name, 0)
    mesh = Mesh(Topology.mesh(len(data.features), 2, data.n_outputs), activation="tanh", random_state=0)
    lines = python_of(mesh, data, solver, 0.01)
    assert len(lines.splitlines()) <= 14
    short = lines.replace("random_state=0, solver", "random_state=0, max_epochs=2, solver").replace("50_000", "500")
    if name == "table" and solver.startswith("stream"):
        short = short.replace("out = ", "y = (y == 'left').astype(int)\nout = ")
    exec(short, {})


# -- who is let in


class Served:
    """A server in a thread of this process."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.port, self.token, ready = self.listener.getsockname()[1], "T" * 32, threading.Event()
        self.server = new_server(self.listener, self.token, None, "", ready.set)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})
        self.thread.start()
        assert ready.wait(30)

    def stop(self):
        self.server.should_exit = True
        self.thread.join(30)
        self.listener.close()

    def get(self, path, **headers):
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        asked.putrequest("GET", path, skip_host=True)
        for name, value in ({"Host": f"127.0.0.1:{self.port}"} | headers).items():
            asked.putheader(name, value)
        asked.endheaders()
        answer = asked.getresponse()
        found = answer.status, answer.read().decode(), dict(answer.getheaders())
        asked.close()
        return found

    def socket(self, token=None, origin="own", host=None):
        origin = f"http://127.0.0.1:{self.port}" if origin == "own" else origin
        address = f"ws://{host or '127.0.0.1'}:{self.port}/{token or self.token}/socket"
        return connect(address, origin=origin, open_timeout=60, max_size=None)


@pytest.fixture(scope="module")
def served():
    server = Served()
    yield server
    server.stop()


def test_the_page_is_whole_small_and_asks_nobody(served):
    sizes = {file.name: file.stat().st_size for file in ASSETS.iterdir()}
    assert set(sizes) == {"index.html", "app.js", "style.css"}
    assert sum(sizes.values()) <= 200_000
    for name in ("", "app.js", "style.css"):
        status, text, headers = served.get(f"/{served.token}/{name}")
        assert status == 200
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        elsewhere = text.replace("http://www.w3.org/2000/svg", "").replace("'http://www.w3.org", "")
        assert "http://" not in elsewhere
        assert "https://" not in elsewhere
        assert "eval(" not in text


def test_only_those_with_the_token_and_of_this_machine_are_let_in(served):
    page = f"/{served.token}/"
    own = f"127.0.0.1:{served.port}"
    for path, headers in [
        ("/", {}), ("/x/", {}), (f"/{served.token[:-1]}/", {}), ("/app.js", {}), (f"/x{page}app.js", {}),
        (page, {"Host": "evil.example"}), (page, {"Host": f"evil.example:{served.port}"}),
        (page, {"Host": "127.0.0.1"}),
        (page, {"Origin": "http://evil.example"}), (page, {"Origin": "null"}), (page, {"Origin": f"https://{own}"}),
    ]:  # fmt: skip
        status, text, _ = served.get(path, **headers)
        assert status == 403, (path, headers)
        assert "Traceback" not in text
    assert served.get(page, Host=f"localhost:{served.port}")[0] == 200
    assert served.get(page, Origin=f"http://{own}")[0] == 200
    assert served.get(f"{page}../../etc/passwd")[0] == 404
    for token, origin in [("x", "own"), (None, "http://evil.example"), (None, None), (None, f"https://{own}")]:
        with pytest.raises(InvalidStatus) as refused:
            served.socket(token, origin)
        assert refused.value.response.status_code == 403
    assert learning() == []  # nothing was started for them


def learning():
    """The processes that learn for pages; other tests may have started others."""
    return [process for process in multiprocessing.active_children() if process.name == "meshnn play"]


def gone(processes, within=60):
    """Whether all have ended, in time."""
    end = time.monotonic() + within
    while any(process.is_alive() for process in processes) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(process.is_alive() for process in processes)


def test_what_learns_ends_with_its_page(served):
    with served.socket() as first:
        assert json.loads(first.recv(timeout=120))["kind"] == "hello"
        (process,) = learning()
        first.send(b"\x00\x01")
        first.send("{")
        first.send('{"do": "run", "on": true}')
        kinds = set()
        while not {"error", "frame", "regions"} <= kinds:
            message = first.recv(timeout=60)
            head = json.loads(message) if isinstance(message, str) else unpacked(message)[0]
            kinds.add(head["kind"])
            if head["kind"] == "frame":
                first.send('{"do": "ack"}')
    assert gone([process])
    assert process.exitcode is not None


@pytest.mark.slow
def test_pages_are_independent_and_not_too_many(served, monkeypatch):
    monkeypatch.setattr("meshnn.play.server.MOST_PAGES", 2)
    with served.socket() as first, served.socket() as second:
        for page in (first, second):
            assert json.loads(page.recv(timeout=120))["kind"] == "hello"
        assert len(learning()) == 2
        with served.socket() as third, pytest.raises(ConnectionClosed, match="2 pages are open already"):
            third.recv(timeout=60)
        processes = learning()
    assert gone(processes)


def heard_out(page):
    while True:
        page.recv(timeout=60)


@pytest.mark.slow
def test_a_process_that_dies_is_told_to_the_page(served):
    with served.socket() as page:
        page.recv(timeout=120)
        (process,) = learning()
        process.kill()
        with pytest.raises(ConnectionClosed, match="what learns has ended"):
            heard_out(page)


# -- the command


@pytest.mark.parametrize(("arguments", "words"), [
    (["--host", "0.0.0.0"], "could be reached from elsewhere"),
    (["--host", "example.org"], "could be reached from elsewhere"),
    (["--port", "70000"], "--port"),
    (["nothing.csv"], "there is no such file"),
    (["--target", "x"], "pass the table"),
])  # fmt: skip
def test_what_the_command_refuses(arguments, words):
    done = meshnn("play", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_said():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        done = meshnn("play", "--no-browser", "--port", str(other.getsockname()[1]))
    assert done.returncode == 2
    assert "take another one" in done.stderr


def test_without_the_extra_it_says_which(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    done = meshnn("play")
    assert done.returncode == 2
    assert "pip install 'meshnn[play]'" in done.stderr


@pytest.mark.slow
def test_ctrl_c_ends_it_in_a_sentence_and_all_that_it_started():
    command = [sys.executable, "-m", "meshnn", "play", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        port = int(address.split(":")[2].split("/")[0])
        path = address.replace("http:", "ws:") + "socket"
        with connect(path, origin=f"http://127.0.0.1:{port}", open_timeout=60, max_size=None) as page:
            page.recv(timeout=120)
            (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[-1:]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "meshnn play has ended" in err
        assert "Traceback" not in out + err
        assert not os.path.exists(f"/proc/{child}") or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]
