"""Links, files and Python code that `meshnn play` exports."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="starlette is not there: meshnn play is not tested")

from meshnn import Mesh, MeshError, Topology, load
from meshnn.play.data import SETS, PlayTable, built_in
from meshnn.play.link import checked_state
from meshnn.play.outputs import python_of
from pages import SEPARABLE, Page, unpacked


@pytest.fixture
def page():
    return Page()


def state_of(page):
    """Return the state that the page builds from the messages."""
    graph, settings, data = page.last("graph"), page.last("settings"), page.last("data")
    first = graph["inputs"] + graph["bias"]
    hidden = graph["names"][first : len(graph["names"]) - graph["outputs"]]
    source = {"set": data["name"]}
    if data["name"] == "table":
        table = page.session.table
        kept = {"name": table.name, "text": table.text, "target": table.target}
        source = {"table": kept | {"impute": False, "drop": []}}
    return {
        "v": 1, "data": source, "seed": data["seed"], "done": page.net.learner.done,
        **{name: settings[name] for name in ("ticks", "solver", "rate", "budget", "pace")},
        **{name: graph[name] for name in ("inputs", "outputs", "bias")},
        "hidden": [[name, graph["activations"][k]] for k, name in enumerate(hidden)],
        "edges": [list(edge) for edge in zip(graph["src"], graph["dst"], page.net.mesh.weights.tolist(), strict=True)],
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
    state = json.loads(json.dumps(state_of(page)))
    other = Page()
    other.do("restore", state=state)
    assert other.edges == page.edges
    assert state_of(other) == state
    assert other.net.learner.done == 3
    np.testing.assert_array_equal(other.net.mesh.forward(other.net.data.X), page.net.mesh.forward(page.net.data.X))
    other.learn(1)


def damaged():
    """Yield links with one missing or invalid part."""
    state = state_of(Page())
    everywhere = (None, -1, "x", [], {}, 1e400, [[0, 0, "x"]], [["h0", "tanh"], ["h0", "tanh"]])
    table = {"name": "x.csv", "text": "a,b\n1,2\n", "target": 3, "impute": 0, "drop": "x"}
    somewhere = {
        "v": [2], "edges": [[*state["edges"], state["edges"][0]], [[0, 99, 1.0]], [[0, 1, float("nan")]]],
        "hidden": [[["i0", "tanh"]], [["h0", "evil"]]], "data": [{"table": table}, {"set": "iris"}],
    }  # fmt: skip
    for name in state:
        yield {key: value for key, value in state.items() if key != name}
        yield from (state | {name: wrong} for wrong in (*everywhere, *somewhere.get(name, [])))


def test_damaged_links_are_refused_in_a_sentence(page):
    before, count = page.edges, 0
    for state in (None, [], *damaged()):
        found = page.do("restore", state=state)
        if errors := [m["text"] for m in found if m["kind"] == "error"]:
            count += 1
            assert "\n" not in errors[0]
            assert page.edges == before
        else:
            page = Page()  # the changed link is valid, for example with one more tick
    assert count > 80
    with pytest.raises(MeshError, match="link"):
        checked_state({})


def test_files_hold_the_net(page, tmp_path):
    page.learn(5)
    for what, name in (("mesh", "moons.mesh"), ("c", "moons.h")):
        (message,) = page.session.receive(json.dumps({"do": "export", "what": what}))
        head, arrays = unpacked(message)
        assert head["name"] == name
        (tmp_path / name).write_bytes(arrays["content"].tobytes())
    model, data = load(tmp_path / "moons.mesh"), page.net.data
    answers = np.array(data.classes)[page.net.mesh.forward(data.X).argmax(axis=1)]
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
    assert found["topology"] == page.net.mesh.topology
    np.testing.assert_array_equal(found["X"], page.net.data.raw[: len(page.net.data.X)])
    assert found["model"].mesh_.activations == page.net.mesh.activations
    for solver, done, want in (("adam", 526, "=526"), ("adam", 50_000, "=2000"), ("adam", 3, None), ("lm", 526, None)):
        lines = python_of(page.net.mesh, page.net.data, solver, 0.01, done)
        assert f"max_epochs{want}" in lines if want else "max_epochs" not in lines


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["lm", "adam", "stream", "stream-adam"])
@pytest.mark.parametrize("name", [*SETS, "table"])
def test_the_lines_of_python_run(name, solver, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("kinds.csv").write_text(SEPARABLE)
    data = PlayTable.read(Path("kinds.csv")).samples(0) if name == "table" else built_in(name, 0)
    mesh = Mesh(Topology.mesh(len(data.features), 2, data.n_outputs), activation="tanh", random_state=0)
    lines = python_of(mesh, data, solver, 0.01)
    assert len(lines.splitlines()) <= 14
    short = lines.replace("random_state=0, solver", "random_state=0, max_epochs=2, solver").replace("50_000", "500")
    if name == "table" and solver.startswith("stream"):
        short = short.replace("out = ", "y = (y == 'left').astype(int)\nout = ")
    exec(short, {})
