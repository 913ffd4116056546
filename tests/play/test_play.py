"""A session of `meshnn play` without a browser: edits, commands, training, tables."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="starlette is not there: meshnn play is not tested")

from commands import meshnn
from meshnn import MeshError
from meshnn.play import learners
from meshnn.play.data import PlayTable, drift
from meshnn.play.limits import LIMITS
from pages import SEPARABLE, Page, read


@pytest.fixture
def page():
    return Page()


# -- edits


def test_a_new_edge_or_neuron_does_not_change_what_the_net_computes(page):
    X = page.net.data.X
    before = page.net.mesh.forward(X)
    for order in (
        {"order": "neuron", "add": True},
        {"order": "edge", "add": True, "src": "h0", "dst": "h0"},
        {"order": "neuron", "add": True, "bare": True},
        {
            "order": "edge",
            "add": True,
            "src": "i1",
            "dst": "h6",
        },  # h6 has no output edges, so a weight of 0 would never be trained
        {"order": "edge", "add": True, "src": "h6", "dst": "o0"},
    ):
        page.do(**order)
        np.testing.assert_allclose(page.net.mesh.forward(X), before, atol=1e-12)
    assert page.edges["i1", "h6"] != 0
    assert page.edges["h6", "o0"] == 0


@pytest.mark.parametrize("solver", ["adam", "lm", "stream"])
def test_scores_are_of_the_net_that_is_shown(page, solver):
    page.do("data", name="spirals")
    page.do("set", solver=solver)
    page.learn(20)
    loss = page.loss()
    if solver == "lm":  # without the penalty; the other solvers score a sample before training on it
        assert page.net.result.loss == pytest.approx(loss)
    page.do("edge", add=True, src="o0", dst="o1")  # with weight 0
    assert page.last("frame")["loss"] == pytest.approx(loss)
    page.do("neuron", add=False, id="h0")
    assert page.last("frame")["loss"] == pytest.approx(page.loss()) != loss
    page.do("undo")
    assert page.last("frame")["loss"] == pytest.approx(loss)
    page.do("set", ticks=2)
    assert page.last("frame")["loss"] == pytest.approx(page.loss()) != loss


@pytest.mark.parametrize("solver", ["adam", "lm", "stream", "stream-adam"])
def test_any_edits_can_be_undone_during_training(page, solver):
    """Remaining edges keep their weights; restored edges get their former weights."""
    rng = np.random.default_rng(5)
    page.do("set", solver=solver)
    page.learn(2)
    first, ticks, edges = page.net.names, page.net.mesh.ticks, page.edges
    page.do("edge", add=False, src="h0", dst="o0")
    for _ in range(30):
        src, dst = (str(name) for name in rng.choice(page.net.names, 2))
        orders = [
            ("edge", {"add": bool(rng.integers(2)), "src": src, "dst": dst}),
            ("neuron", {"add": bool(rng.integers(2)), "id": dst}), ("grow", {}), ("prune", {}),
            ("activation", {"id": src, "name": str(rng.choice(["relu", "sin", "sigmoid"]))}),
            ("set", {"ticks": int(rng.integers(1, 6))}),
        ]  # fmt: skip
        order, fields = orders[rng.integers(len(orders))]
        before, done = page.edges, page.net.learner.done
        page.do(order, **fields)
        assert all(weight == before.get(pair, weight) for pair, weight in page.edges.items())
        page.learn(1)
        assert page.net.learner.done == done + 1
        assert page.last("frame")["version"] == page.last("graph")["version"]
    count = page.last("graph")["undo"]
    assert count >= 10
    for k in range(count):
        page.do("undo")
        if k % 3 == 0:
            page.learn(1)
    assert (page.net.names, page.net.mesh.ticks, page.edges.keys()) == (first, ticks, edges.keys())
    assert set(page.net.mesh.activations[:5]) == {"tanh"}


def test_moments_of_adam_go_with_their_edges(page):
    def moments():
        return dict(zip(page.edges, page.net.learner.solver.optimizer.first.tolist(), strict=True))

    page.learn(3)
    first = moments()
    page.do("neuron", add=False, id="h2")
    page.do("neuron", add=True)
    now = moments()
    assert now.keys() & first.keys()
    assert all(value == first.get(pair, 0.0) for pair, value in now.items())


@pytest.mark.parametrize(("order", "words"), [
    ({"order": "edge", "add": True, "src": "h0", "dst": "i0"}, "into i0"),
    ({"order": "edge", "add": True, "src": "h0", "dst": "h1"}, "from h0 to h1"),
    ({"order": "edge", "add": True, "src": "h0", "dst": "h77"}, "'h77'"),
    ({"order": "edge", "add": False, "src": "h0", "dst": "h0"}, "from h0 to h0"),
    ({"order": "neuron", "add": False, "id": "o0"}, "o0 is an output"),
    ({"order": "activation", "id": "o0", "name": "relu"}, "o0"),
    ({"order": "activation", "id": "h0", "name": "step"}, "'step'"),
    ({"order": "set", "ticks": 0}, "ticks"),
    ({"order": "set", "rate": "fast"}, "'fast'"),
    ({"order": "set", "solver": "magic"}, "'magic'"),
    ({"order": "set", "pace": 3}, "pace"),
    ({"order": "data", "name": "../../etc/passwd"}, "'../../etc/passwd'"),
    ({"order": "data", "name": "table"}, "no table yet"),
    ({"order": "csv", "name": "x.csv", "text": 3}, "text"),
    ({"order": "csv", "name": "x.csv", "text": "a,b\n1,2\n", "drop": "a"}, "drop"),
    ({"order": "scores", "src": "h77"}, "removed"),
    ({"order": "sample", "point": [1, 2, 3]}, "got 3"),
    ({"order": "sample", "index": 1000}, "999"),
    ({"order": "export", "what": "exe"}, "'exe'"),
    ({"order": "table"}, "no table yet"),
    ({"order": "edge"}, "KeyError"),
    ({"order": "__init__"}, "'__init__'"), ({"order": None}, "'None'"), ({"order": 3}, "'3'"),
])  # fmt: skip
def test_a_wrong_order_is_refused_in_a_sentence_and_changes_nothing(page, order, words):
    before = page.edges, page.net.mesh.ticks, page.net.solver
    text = page.refused(**order)
    assert words in text
    assert "\n" not in text
    assert (page.edges, page.net.mesh.ticks, page.net.solver) == before
    for message in ("", "[]", "null", "[" * 5000):
        assert read(page.session.receive(message)[0])["kind"] == "error"


def test_the_score_of_an_absent_edge_is_the_gradient_that_it_then_has(page):
    page.do("data", name="iris")  # all of the few samples are used
    page.do("scores", src="h0", dst="h0")
    ((src, dst, score),) = page.last("scores")["edges"]
    assert (src, dst) == ("h0", "h0")
    page.do("edge", add=True, src="h0", dst="h0")
    _, grad = page.net.mesh.gradient(page.net.data.X, page.net.data.y)
    assert abs(score) > 1e-6
    np.testing.assert_allclose(grad[list(page.edges).index(("h0", "h0"))], score, rtol=1e-9)


def test_grow_and_prune_keep_to_the_budget(page):
    page.do("scores")
    best = page.last("scores")["edges"][0]
    count = len(page.edges)
    page.do("set", budget=count + 2)
    page.do("grow")
    assert len(page.edges) == count + 2
    assert page.edges[best[0], best[1]] == 0
    for order in ({"order": "grow"}, {"order": "edge", "add": True, "src": "h4", "dst": "h4"},
                  {"order": "neuron", "add": True}):  # fmt: skip
        assert "budget" in page.refused(**order)
    page.do("set", budget=40)
    page.do("prune")
    assert len(page.edges) == 40
    page.do("undo")
    page.do("set", budget=1)
    page.do("prune")  # as far as possible
    assert "last path to an output" in page.last("status")["text"]
    page.do("undo")
    assert len(page.edges) == count + 2


def test_an_edit_that_the_solver_refuses_changes_nothing(page, monkeypatch):
    page.do("set", solver="lm")
    page.learn(2)
    page.do("prune")
    before, ticks = page.edges, page.net.mesh.ticks
    monkeypatch.setattr(learners, "LIMITS", replace(LIMITS, lm_work=0.0))
    for order in ({"order": "undo"}, {"order": "neuron", "add": True}, {"order": "set", "ticks": 5}):
        assert "adam" in page.refused(**order)
    assert "adam" in page.refused("data", name="circles")
    assert (page.edges, page.net.mesh.ticks, page.net.data.name) == (before, ticks, "moons")
    page.learn(1)
    assert page.last("graph")["undo"] == 1


def test_a_new_net_or_new_weights_can_be_undone(page):
    page.do("new", graph="none")
    page.do("set", ticks=1)
    page.learn(2)
    before = page.edges
    assert "nothing to redo" in page.refused("redo")
    page.do("new", graph="layered", hidden=4)  # takes two ticks
    page.learn(2)
    after = page.edges
    page.do("undo")
    assert (page.edges, page.net.mesh.ticks) == (before, 1)
    page.do("redo")
    assert page.edges == after
    page.do("reset", seed=3)
    assert page.edges.keys() == after.keys()
    assert page.edges != after
    for _ in range(4):
        page.do("undo")
    assert (len(page.edges), page.last("settings")["ticks"]) == (61, 3)


# -- training


def test_lm_learns_a_table_of_numbers(page):
    rows = "".join(f"{k / 7:.3f},{k % 4},{k * 0.37 + k % 4:.4f}\n" for k in range(60))
    page.do("csv", name="kinds.csv", text="a,b,y\n" + rows)
    page.do("set", solver="lm")
    for _ in range(20):
        page.do("step")
    assert page.last("frame")["test"] > 0.95
    assert page.last("settings")["running"] is False
    assert page.last("scatter")["target"] == "y"
    page.do("data", name="digits")  # too large for lm
    assert page.net.solver == "adam"
    assert "adam" in page.refused("set", solver="lm")


def test_a_stream_follows_its_drift(page):
    page.do("data", name="drift")
    assert page.last("settings")["solver"] == "stream"
    page.net.result = page.net.learner.advance(3990)
    page.do("step")  # ten samples
    assert page.net.learner.done == 4000
    assert page.net.result.accuracy > 0.85  # after a fifth of a turn, a fixed boundary would be wrong
    X, y = drift(1000, 4000 - 1000)
    assert (page.net.mesh.forward(page.net.data.scaling.inputs(X)).argmax(axis=1) == y).mean() > 0.8


def test_it_trains_while_it_runs_and_waits_for_the_page(page):
    session = page.session
    assert session.advance() == []
    page.do("set", pace=0)
    page.do("run", on=True)
    seen = []
    while len(seen) < 2:
        seen += [read(m) for m in session.advance() if read(m)["kind"] == "frame"]
    time.sleep(2 * LIMITS.frame)
    done = page.net.learner.done
    assert session.advance() == []  # two frames are not acknowledged: training continues, no frame is sent
    assert page.net.learner.done > done
    session.receive('{"do": "ack"}')
    assert read(session.advance()[0])["kind"] == "frame"
    session.receive('{"do": "run", "on": false}')
    assert session.waits > 1


def test_a_page_that_does_not_acknowledge_gets_the_newest_frame_only(page):
    orders = ['{"do": "step"}'] * 50
    frames = [m for order in orders for m in map(read, page.session.receive(order)) if m["kind"] == "frame"]
    assert [m["done"] for m in frames] == [1, 2]
    (newest, *_) = [m for m in map(read, page.session.receive('{"do": "ack"}')) if m["kind"] == "frame"]
    assert newest["done"] == 50
    assert page.session.receive('{"do": "ack"}') == []  # no frame is pending


# -- tables


@pytest.mark.parametrize("text", ["a,b,c\n1,inf,x\n2,3,y\n2,4,y\n3,3,x\n1,3,y\n", ""])
def test_bad_tables_are_refused_in_the_words_of_fit(page, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text(text)
    by_fit = meshnn("fit", "bad.csv", "--target", "c")
    assert by_fit.returncode == 2
    said = page.refused("csv", name="bad.csv", text=text, target="c")
    assert by_fit.stderr.strip().splitlines()[-1].startswith(f"meshnn: {' '.join(said.split())}")
    assert page.net.data.name == "moons"


def test_the_choices_of_a_refused_table_can_be_changed(page):
    page.do("csv", name="gaps.csv", text="a,b,c\n" + "1,2,x\n3,,y\n5,6,x\n" * 5)
    assert page.last("table")["columns"] == ["a", "b", "c"]
    page.do("table", target="c", impute=True)
    assert page.last("data")["title"] == "gaps.csv"
    assert page.net.data.features == ("a", "b")
    page.do("table", target="c", drop=["b"])
    assert page.net.data.features == ("a",)
    page.do("table", target="a", impute=True)
    assert page.net.data.target == "a"


def test_a_table_of_the_command_line(tmp_path):
    file = tmp_path / "kinds.csv"
    file.write_text(SEPARABLE)
    page = Page(file, "kind")
    assert page.last("data")["classes"] == ["left", "right"]
    assert page.heard[0]["table"]["text"] == SEPARABLE
    with pytest.raises(MeshError, match=r"x\.exe"):
        PlayTable.parse("x.exe", "a,b\n1,2\n")
    with pytest.raises(MeshError, match="5,000,001"):
        PlayTable.parse("x.csv", "a" * 5_000_001)
    assert PlayTable.parse("../../x/y.csv", "a,b\n1,2\n").name == "y.csv"
    page = Page(tmp_path / "none.csv")
    assert "none.csv" in page.last("error")["text"]
    assert page.last("data")["name"] == "moons"
