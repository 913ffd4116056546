"""Plots and reports of models: no panel is blank, and their files are complete."""

import copy
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from drawn import NETS, draw_weights, part, texts, title
from meshnn import Mesh, MeshClassifier, MeshError, MeshRegressor, Topology
from meshnn.plots import (
    PANELS,
    animate_lineage,
    draw_adjacency,
    draw_graph,
    draw_regions,
    graph_svg,
    plot_graph,
    plot_history,
    plot_importances,
    plot_lineage,
    plot_model,
    save_figure,
    style,
)  # fmt: skip
from meshnn.plots.save import save_frames
from meshnn.tables.synthetic import spirals
from meshnn.training import History, structure, train


@pytest.fixture
def ax():
    return Figure().subplots()


def fit(columns, classes, **options):
    """Return a small classifier with two restarts."""
    X, y = spirals(60, random_state=0)
    X = np.hstack([X, X[:, :1] ** 2])[:, : len(columns)]
    model = MeshClassifier(hidden=5, solver="adam", max_epochs=8, l2=0.0, n_restarts=2, random_state=0, **options)
    return model.fit(pd.DataFrame(X, columns=columns), np.array(classes)[y])


@pytest.fixture(scope="module")
def model():
    return fit(["left", "right"], ["no", "yes"])


# -- the report --------------------------------------------------------------------------------------------------


def shades(picture, ax):
    """Return the standard deviation of the pixels of a panel."""
    height, width = picture.shape[:2]
    box = ax.get_position()
    rows = slice(round((1 - box.y1) * height), round((1 - box.y0) * height))
    return float(picture[rows, round(box.x0 * width) : round(box.x1 * width), :3].std())


@pytest.mark.parametrize("what", PANELS)
def test_no_panel_is_blank(tmp_path, model, what):
    figure = plot_model(model, what=what, points=[[0.5, 0.5], [1, 9]], labels=["no", "yes"])
    save_figure(figure, tmp_path / "net.png", dpi=50)
    picture = imread(tmp_path / "net.png")
    panels = [ax for ax in figure.axes if title(ax)]
    assert len(panels) == (4 if what == "all" else 1)
    for panel in panels:
        assert shades(picture, panel) > 0.05, title(panel)
    if what == "regions":
        assert panels[0].get_ylim()[1] > 9  # the points are inside the plot


@pytest.mark.parametrize(
    ("features", "history", "want"),
    [
        (2, True, ["Graph", "Training", "Weights", "Decision regions"]),
        (3, True, ["Graph", "Weights", "Training"]),
        (2, False, ["Graph", "Weights", "Decision regions"]),
        (0, False, ["Graph", "Weights"]),
    ],
)
def test_the_page_has_the_panels_that_apply(model, features, history, want):
    shown = {0: model.mesh_, 2: model, 3: fit(["a", "b", "c"], [0, 1])}[features]
    if features and not history:
        shown = copy.copy(model)
        shown.history_ = History()
    figure = plot_model(shown, title="net")
    assert [title(ax) for ax in figure.axes if title(ax)] == want
    boxes = [ax.get_position() for ax in figure.axes if title(ax) in want]
    assert sum(a.overlaps(b) for a in boxes for b in boxes) == len(boxes)  # each box overlaps only itself
    assert max(boxes, key=lambda box: box.width * box.height) is boxes[0]


def test_the_page_of_a_mesh():
    mesh = Mesh(NETS["mesh"], 2, "tanh", random_state=0)
    assert plot_model(mesh, title="net.mesh").get_suptitle() == "net.mesh: 2-5-2 + bias, 31 of 61 edges live, 2 ticks"
    assert texts(plot_model(mesh, what="loss").axes[0]) == ["no history in this file"]
    for wrong in ({"what": "everything"}, {"what": "regions"}, {"points": [[0, 0]]}):
        with pytest.raises(MeshError, match=r"everything|two features"):
            plot_model(mesh, **wrong)


@pytest.mark.slow
def test_names_of_any_kind_are_drawn_as_they_are(tmp_path):
    features, classes = ["$x_1^2$", "größe_µm"], ["_hidden $", "中文 \\frac{"]
    figure = plot_model(fit(features, classes), title="$a_b$ 網.mesh")
    for ending in ("svg", "png", "pdf"):
        save_figure(figure, tmp_path / f"net.{ending}", dpi=50)  # no warning about missing glyphs
    graph, _, _, decided = figure.axes[:4]
    assert {*features, *classes} <= set(texts(graph))
    assert [decided.get_xlabel(), decided.get_ylabel()] == features
    assert [text.get_text() for text in decided.get_legend().get_texts()] == classes
    assert not any(text.get_parse_math() for text in graph.texts if text.get_text() in {*features, *classes})


# -- plots of models ---------------------------------------------------------------------------------------------


def test_plots_of_a_model_use_given_axes_or_new_ones(ax, model):
    from matplotlib import pyplot

    for plot in (plot_history, plot_graph, plot_importances):
        given = Figure().subplots()
        assert plot(model, given) is given
        assert title(plot(model)) in ("Training", "Graph", "Importances")
    pyplot.close("all")
    assert {"left", "right", "no", "yes"} <= set(texts(plot_graph(model, Figure().subplots())))
    assert len(part(plot_graph(model.mesh_, Figure().subplots()), "neurons").get_offsets()) == 10
    lines = plot_history(model, Figure().subplots()).lines
    assert sorted(len(line.get_xdata()) for line in lines) == [8, 8]  # one per restart
    for plot in (plot_history, plot_graph, plot_importances):
        with pytest.raises(MeshError, match="MeshClassifier"):
            plot(MeshClassifier(), ax)


def test_importances_are_sorted_bars_with_names(ax):
    X = np.random.default_rng(0).standard_normal((80, 3))
    frame = pd.DataFrame(X, columns=["useless", "weak", "strong $"])
    model = MeshRegressor(hidden=2, max_epochs=60, random_state=0).fit(frame, X[:, 1] + 4 * X[:, 2])
    plot_importances(model, ax, most=2)
    names = [label.get_text() for label in ax.get_yticklabels()]
    widths = [bar.get_width() for bar in ax.patches]
    assert names == ["strong $", "weak"]
    np.testing.assert_allclose(widths, model.feature_importances_[[2, 1]])
    assert [bar.get_y() for bar in ax.patches] == sorted((bar.get_y() for bar in ax.patches), reverse=True)
    assert title(ax) == "Importances: 2 of 3 features"


@pytest.mark.parametrize("name", [name for name in NETS if name not in ("loops only", "no edges")])
def test_a_graph_as_svg(name):
    t = NETS[name]
    mesh = Mesh(t, 3, "tanh", weights=draw_weights(t))
    text = graph_svg(mesh, width=300, most_edges=t.n_edges)
    root, space = ET.fromstring(text), "{http://www.w3.org/2000/svg}"
    assert root.get("width") == "300"
    assert graph_svg(mesh, most_edges=2).count("<path") == 2
    assert len(root.findall(f"{space}circle")) == t.n_neurons
    paths = root.findall(f"{space}path")
    dotted = [path for path in paths if path.get("stroke-dasharray")]
    assert (len(paths), len(dotted)) == (t.n_edges, int(mesh.dead_edges().sum()))
    live = [path.get("stroke") for path in paths if not path.get("stroke-dasharray")]
    assert live.count(style.POSITIVE) == int((mesh.weights[~mesh.dead_edges()] > 0).sum())
    for circle in root.findall(f"{space}circle"):
        assert 0 < float(circle.get("cx")) < 300
        assert 0 < float(circle.get("cy")) < float(root.get("height"))


# -- files -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "ending", "begin"), [("all", "svg", b"<?xml"), ("graph", "pdf", b"%PDF"), ("regions", "PNG", b"\x89PNG")]
)
def test_the_same_model_is_the_same_bytes(tmp_path, model, what, ending, begin):
    figure, anew = plot_model(model, what=what), plot_model(model, what=what)
    files = [tmp_path / f"{name}.{ending}" for name in ("first", "again", "anew")]
    for drawn, path in zip((figure, figure, anew), files, strict=True):
        save_figure(drawn, path, dpi=50)
    first, again, other = (path.read_bytes() for path in files)
    assert first == again == other
    assert first.startswith(begin)
    assert b"Date" not in first
    assert b"<text" not in first  # text is converted to outlines, so no font is required
    assert sorted(tmp_path.iterdir()) == sorted(files)  # no temporary files remain


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("net.jpg", r"'\.jpg'"),
        ("net", "no ending"),
        ("missing/net.svg", "missing.*directory"),
        ("folder.svg", "folder.*directory"),
        ("x" * 300 + ".svg", "long"),
        ("a\0b.svg", "name"),
    ],
)
def test_paths_that_are_refused(tmp_path, path, message):
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(MeshError, match=message):
        save_figure(Figure(), tmp_path / path)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.svg"]


# -- without matplotlib ------------------------------------------------------------------------------------------


def test_without_matplotlib(monkeypatch, tmp_path, ax, model):
    t, w = NETS["no hidden"], draw_weights(NETS["no hidden"])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for use in (
        lambda: plot_model(model),
        lambda: plot_graph(model),
        lambda: draw_graph(ax, t, w),
        lambda: draw_adjacency(ax, t, w),
        lambda: draw_regions(ax, None, (0, 1, 0, 1)),
        lambda: save_figure(ax.figure, tmp_path / "net.svg"),
    ):
        with pytest.raises(MeshError, match=r"pip install 'meshnn\[plots\]'"):
            use()
    assert graph_svg(model).startswith("<svg")


def test_lineages_are_drawn(tmp_path):
    from PIL import Image

    X, y = spirals(80, random_state=0)
    mesh = Mesh(Topology.mesh(2, 6, 2), ticks=3, activation="tanh", random_state=0)
    both = [structure.Prune(to=40), structure.Regrow(every=2)]
    for _ in train(mesh, X, y, structure=both, solver="adam", max_epochs=12, tol=0.0, random_state=0):
        pass
    figure = plot_lineage(mesh.lineage_, "net")
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == ["Before: 78 edges", "After: 40 edges", f"Edges over time: {len(mesh.lineage_.steps)} edits"]
    save_figure(figure, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert np.asarray(image.convert("RGB")).std() > 10
    pictures = animate_lineage(mesh.lineage_, "net")
    assert len(pictures) == len(mesh.lineage_.steps) + 1
    save_frames(pictures, tmp_path / "a.gif")
    assert (tmp_path / "a.gif").stat().st_size > 1000
    with pytest.raises(MeshError, match="did not change"):
        plot_lineage(None)
