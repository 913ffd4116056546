"""Plots: the data of their artists."""

import numpy as np
import pytest
from hypothesis import given
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure

from cases import topologies
from drawn import NETS, draw_weights, part, texts, title
from examples import examples
from meshnn import MeshError, Topology
from meshnn.plots import draw_adjacency, draw_graph, draw_history, draw_regions, save_figure, style
from meshnn.plots.layout import place_neurons

TICKS = 3


@pytest.fixture
def ax():
    return Figure(figsize=(6, 5), layout="constrained").subplots()


def slope(X):
    """Return probabilities of two classes, the first on the right."""
    return np.stack([X[:, 0], 1 - X[:, 0]], axis=1)


# -- positions of neurons ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_neurons_do_not_overlap(name):
    places = place_neurons(NETS[name])
    gap = np.linalg.norm(places.xy[:, None] - places.xy[None], axis=2) - places.radius[:, None] - places.radius
    np.fill_diagonal(gap, 1.0)
    assert gap.min() > 0
    assert places.radius.min() > 0.005


def test_large_nets_are_placed_within_the_picture():
    t = Topology.mesh(784, 1000, 50, density=0.001, random_state=0)
    xy = place_neurons(t, width=1.4).xy
    assert ((xy > [-0.15, -0.1]) & (xy < [1.55, 1.1])).all()
    assert len(np.unique(xy.round(6), axis=0)) == t.n_neurons


# -- the graph ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_every_edge_is_drawn_once(ax, name):
    t = NETS[name]
    dead = t.dead_edges(TICKS)
    draw_graph(ax, t, draw_weights(t), ticks=TICKS)
    assert len(part(ax, "edges").get_segments()) == int((~dead).sum())
    assert len(part(ax, "dead edges").get_segments()) == int(dead.sum())
    assert len(part(ax, "neurons").get_offsets()) == t.n_neurons
    assert title(ax) == "Graph"


@examples(25)
@given(t=topologies(ticks=4))
def test_any_graph_can_be_drawn(t):
    ax = Figure().subplots()
    draw_graph(ax, t, draw_weights(t), ticks=4)
    drawn = part(ax, "edges").get_segments() + part(ax, "dead edges").get_segments()
    assert len(drawn) == t.n_edges
    assert all(np.isfinite(segment).all() for segment in drawn)
    assert len({segment.round(9).tobytes() for segment in drawn}) == t.n_edges  # no edge covers another


def test_colours_are_signs_and_widths_are_sizes(ax):
    t = Topology.layered([4, 1], bias=False)
    draw_graph(ax, t, [0.5, -2.0, 0.0, 1.0])
    edges = part(ax, "edges")
    colours = [to_hex(colour) for colour in edges.get_colors()]
    assert colours == [style.FAINT, style.POSITIVE, style.POSITIVE, style.NEGATIVE]  # weakest first
    assert (np.diff(edges.get_linewidths()) > 0).all()
    assert (np.diff(edges.get_colors()[:, 3]) > 0).all()
    heights = [segment[0][1] for segment in edges.get_segments()]
    assert heights == pytest.approx(place_neurons(t).xy[[2, 0, 3, 1], 1].tolist())


def test_two_way_edges_part_and_loops_stay_at_their_neuron(ax):
    t = Topology(1, 2, 1, [(1, 2), (2, 1), (1, 1), (0, 1), (2, 3)], bias=False)
    draw_graph(ax, t, [1.0, 2.0, 3.0, 4.0, 5.0])
    by_edge = dict(zip(zip(t.src.tolist(), t.dst.tolist(), strict=True), part(ax, "edges").get_segments(), strict=True))
    there, back = by_edge[1, 2], by_edge[2, 1]
    np.testing.assert_allclose(there[0], back[-1])
    assert np.linalg.norm(there[len(there) // 2] - back[len(back) // 2]) > 0.1
    loop = by_edge[1, 1]
    np.testing.assert_allclose(loop[0], loop[-1])
    assert np.linalg.norm(loop - by_edge[1, 2][0], axis=1).max() < 0.1
    assert len(by_edge[0, 1]) == 2  # straight


def test_of_many_edges_the_strongest_are_drawn(ax):
    t = Topology.layered([120, 60], bias=False)
    w = np.arange(1.0, t.n_edges + 1)
    dead = w > 7100  # live edges are drawn first
    draw_graph(ax, t, w, dead=dead)
    assert title(ax) == "Graph: strongest 5,000 of 7,200 edges"
    assert len(part(ax, "edges").get_segments()) == 5000
    assert len(part(ax, "dead edges").get_segments()) == 0
    assert "|weight| = 7.1e+03" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_numbers_and_names(ax):
    t = NETS["layered"]
    draw_graph(ax, t, draw_weights(t), feature_names=["a", "b", "c", "d" * 30], output_names=[1, 2.5, None])
    shown = texts(ax)
    assert set(map(str, range(t.n_neurons))) <= set(shown)
    assert {"a", 7 * "d" + "…" + 6 * "d", "2.5", "None", "bias", "14 hidden", "4 inputs"} <= set(shown)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [1.0]}, r"\(61,\).* got \(1,\)"),
        ({"weights": np.full(61, np.nan)}, "weight 0 is nan"),
        ({"dead": np.zeros(61)}, "float64"),
        ({"feature_names": ["a"]}, "feature_names must be 2 names, got 1"),
        ({"output_names": list("abc")}, "output_names must be 2 names, got 3"),
    ],
)
def test_refusals(ax, change, message):
    t = NETS["mesh"]
    with pytest.raises(MeshError, match=message):
        draw_graph(ax, t, **{"weights": draw_weights(t)} | change)


# -- the adjacency matrix ----------------------------------------------------------------------------------------


def test_the_matrix_holds_the_weights(ax):
    t = NETS["mesh"]
    w = draw_weights(t)
    w[:3] = 0.0  # an edge of weight 0 is still an edge
    draw_adjacency(ax, t, w)
    got = ax.images[0].get_array()
    want = np.full((t.n_neurons, t.n_neurons), np.nan)
    want[t.src, t.dst] = w
    np.testing.assert_array_equal(got.filled(np.nan), want)
    low, high = ax.images[0].get_clim()
    assert -low == high == np.abs(w).max()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["inputs", "bias", "hidden", "outputs"]
    lines = [line.get_ydata()[0] for line in ax.lines if line.get_xdata()[0] == 0 and line.get_xdata()[1] == 1]
    assert lines == [1.5, 2.5, 7.5]


def test_a_large_matrix_is_binned(ax):
    t = Topology.mesh(3, 900, 2, density=0.005, random_state=0)
    w = draw_weights(t)
    draw_adjacency(ax, t, w)
    got = ax.images[0].get_array().filled(np.nan)
    assert title(ax) == "Weights: each cell the strongest of 3 by 3"
    assert got.shape == (302, 302)
    want = np.zeros((302, 302))
    np.maximum.at(want, (t.src // 3, t.dst // 3), np.abs(w))
    np.testing.assert_array_equal(np.nan_to_num(np.abs(got)), want)
    assert np.isin(got[np.isfinite(got)], w).all()  # signs are kept


# -- the history -------------------------------------------------------------------------------------------------


def test_one_line_a_restart(ax):
    loss, epoch = np.exp(-np.arange(30) / 7), np.arange(1, 31)
    columns = {"epoch": [*epoch, *epoch], "loss": [*loss, *2 * loss], "restart": [0] * 30 + [1] * 30}
    columns |= {"validation": [1.0, None] * 30, "accuracy": 1 - np.array([*loss, *loss])}
    draw_history(ax, columns, chosen=1)
    solid, dashed = ([line for line in ax.lines if line.get_linestyle() == look] for look in ("-", "--"))
    assert len(solid) == len(dashed) == 2
    assert [line.get_alpha() for line in solid] == [0.25, 1.0]
    np.testing.assert_array_equal(solid[1].get_ydata(), 2 * loss)
    assert ax.get_yscale() == "log"
    (right,) = [other for other in ax.figure.axes if other is not ax]
    assert right.get_ylim() == (0.0, 1.02)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["loss", "validation", "accuracy", "other runs"]


@pytest.mark.parametrize(
    ("columns", "scale"),
    [
        ({"loss": [3.0, 1.0, 0.5]}, "log"),
        ({"loss": [3.0, 1.0, 0.0]}, "linear"),
        ({"loss": [1.0, -2.0, None]}, "linear"),
        ({"loss": [1.0, float("inf"), float("nan")]}, "log"),
        ({"validation": [1e-12, 1.0]}, "log"),
        ({"loss": [0.5], "epoch": [1]}, "log"),
        ({"loss": [0.69, 0.69]}, "log"),
        ({"accuracy": [0.5, 0.7], "epoch": np.array([10, 20])}, "linear"),
        ({"loss": [1.0, 0.5], "epoch": [None, None]}, "log"),
    ],
)
def test_gaps_and_scales(ax, columns, scale, tmp_path):
    draw_history(ax, columns)
    assert ax.get_yscale() == scale
    save_figure(ax.figure, tmp_path / "loss.png", dpi=50)  # drawing the axis ticks raises no warning


# -- decision regions --------------------------------------------------------------------------------------------


def test_regions_have_the_colour_of_their_class_and_are_pale_when_unsure(ax):
    draw_regions(ax, slope, (0, 1, 0, 1), classes=["left", "right"])
    picture = ax.images[0].get_array()
    blue, orange = np.array([to_rgba(colour)[:3] for colour in style.CLASSES[:2]])
    for pixel, colour in ((picture[50, -1], blue), (picture[50, 0], orange)):
        depth = (1 - pixel) / (1 - colour)
        np.testing.assert_allclose(depth, depth[0])
        assert depth[0] > 0.6
    assert (picture[50, 99] > 0.85).all()
    assert len(ax.collections) == 1  # one boundary
    boundary = np.concatenate([path.vertices for path in ax.collections[0].get_paths()])
    np.testing.assert_allclose(boundary[:, 0], 0.5, atol=1e-3)


def test_one_column_is_the_second_class_and_a_vector_holds_values(ax):
    other = Figure().subplots()
    draw_regions(ax, lambda X: X[:, :1], (0, 1, 0, 1))
    draw_regions(other, lambda X: slope(1 - X), (0, 1, 0, 1))
    np.testing.assert_array_equal(ax.images[0].get_array(), other.images[0].get_array())
    values = Figure().subplots()
    draw_regions(values, lambda X: X.sum(axis=1), (0, 1, 0, 1), points=[[0.5, 0.5]], labels=[1.0])
    assert title(values) == "Output"
    assert values.images[0].get_array().shape == (200, 200)
    assert part(values, "points").get_facecolor().shape == (1, 4)


def test_one_class_everywhere_and_answers_that_are_not_numbers(ax):
    draw_regions(ax, lambda X: np.where(X[:, :1] < 0.1, np.nan, [0.9, 0.1]), (0, 1, 0, 1))
    assert np.isfinite(ax.images[0].get_array()).all()


def test_points_of_training_and_test(ax):
    points, labels = np.random.default_rng(0).random((30, 2)), np.array(["no", "yes", "maybe"] * 10)
    shown = {"points": points, "labels": labels, "test_mask": labels == "yes"}
    draw_regions(ax, slope, (0, 1, 0, 1), classes=["no", "yes"], **shown)
    assert len(part(ax, "points").get_offsets()) == 20
    assert len(part(ax, "test points").get_offsets()) == 10
    colours = {to_hex(colour) for colour in part(ax, "points").get_facecolor()}
    assert len(colours) == 2
    assert to_hex((0.25, 0.25, 0.25)) in colours  # "maybe" is not a class
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["no", "yes", "train", "test"]


@pytest.mark.parametrize("labels", [np.array([0, 1]), np.array(["a", "b"])])
def test_labels_are_numbers_or_names(ax, labels):
    draw_regions(ax, slope, (0, 1, 0, 1), classes=["a", "b"], points=[[0, 0], [1, 1]], labels=labels)
    want = [tuple(0.8 * v for v in to_rgba(colour)[:3]) for colour in style.CLASSES[:2]]
    np.testing.assert_allclose(part(ax, "points").get_facecolor()[:, :3], want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bounds": (1, 0, 0, 1)}, r"got \(1, 0, 0, 1\)"),
        ({"bounds": (0, np.nan, 0, 1)}, "bounds"),
        ({"decide": lambda X: X[:7]}, r"\(7, 2\)"),
        ({"decide": lambda X: X[:, 0] * np.nan}, "finite"),
        ({"classes": ["one"]}, "classes"),
        ({"points": [[1.0]]}, r"points .* got \(1, 1\)"),
        ({"points": [[1, 1]], "labels": [0, 1]}, "labels"),
        ({"points": [[1, 1]], "test_mask": [1]}, "test_mask .* int64"),
    ],
)
def test_region_refusals(ax, change, message):
    with pytest.raises(MeshError, match=message):
        draw_regions(ax, **{"decide": slope, "bounds": (0, 1, 0, 1)} | change)


# -- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("petal length", "petal length"),
        ("a_rather_long_name", "a_rathe…g_name"),
        ("two\nlines\tand\x00more", "two lin…d more"),
        ("幅広い特徴量の名前", "幅広い…の名前"),
        ("\ud800", ""),
        (3, "3"),
    ],
)
def test_names_are_shortened(name, want):
    assert style.shorten(name) == want
