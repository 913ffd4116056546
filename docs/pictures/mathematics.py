"""Draw the figures of docs/explanation/: run `python docs/pictures/mathematics.py`.

The figures are computed here from lists of edges. Results that the library also computes are compared with it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from meshnn import Mesh, Topology
from meshnn.plots import save_figure, style

HERE = Path(__file__).parent
USED, LIVE, NEEDED, NONE = style.POSITIVE, "#b9d5ec", "#f2c58c", "white"


def hops(graph: Topology) -> np.ndarray:
    """Return the boolean adjacency matrix without edges into clamped neurons, which have no effect."""
    A = np.zeros((graph.n_neurons, graph.n_neurons), bool)
    A[graph.src, graph.dst] = True
    A[:, : graph.n_clamped] = False
    return A


def live_and_needed(graph: Topology, ticks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks (ticks + 1, neurons): states that can be non-zero, states that can still reach an output."""
    A = hops(graph)
    clamped = np.arange(graph.n_neurons) < graph.n_clamped
    live = np.zeros((ticks + 1, graph.n_neurons), bool)
    need = np.zeros_like(live)
    live[0], need[ticks, graph.outputs] = clamped, True
    for k in range(1, ticks + 1):
        live[k] = clamped | A[live[k - 1]].any(axis=0)
    for k in range(ticks, 0, -1):
        need[k - 1] = A[:, need[k]].any(axis=1)
    return live, need


def draw_ticks() -> Figure:
    """Draw a small graph unrolled in time, with its live and needed states and the edges between them."""
    names = ["x", "a", "b", "c", "d", "y"]
    pairs = ["xa", "ab", "bc", "cy", "ca", "cd", "dd", "xc"]
    graph = Topology(1, 4, 1, [(names.index(s), names.index(d)) for s, d in pairs], bias=False)
    figure = Figure(figsize=(12.5, 4.2), layout="constrained")
    for ax, ticks in zip(figure.subplots(1, 2, width_ratios=(3, 5)), (2, 4), strict=True):
        live, need = live_and_needed(graph, ticks)
        alive = np.zeros(graph.n_edges, bool)
        for k in range(1, ticks + 1):
            for e, (s, d) in enumerate(zip(graph.src, graph.dst, strict=True)):
                counts = live[k - 1, s] and need[k, d]
                alive[e] |= counts
                line = {"color": style.INK, "lw": 1.4} if counts else {"color": "#d5d5d5", "lw": 0.7}
                ax.annotate(
                    "", (k - 0.13, -d), (k - 1 + 0.13, -s), zorder=1 + counts,
                    arrowprops={"arrowstyle": "-|>", "shrinkA": 3, "shrinkB": 3, "mutation_scale": 8, **line},
                )  # fmt: skip
        assert np.array_equal(~alive, graph.dead_edges(ticks)), "dead_edges() of the library differs"
        for k in range(ticks + 1):
            for j in range(graph.n_neurons):
                fill = {(1, 1): USED, (1, 0): LIVE, (0, 1): NEEDED, (0, 0): NONE}[int(live[k, j]), int(need[k, j])]
                ax.plot(k, -j, "o", ms=17, mfc=fill, mec=style.INK, mew=0.8, zorder=3)
                white = "white" if fill == USED else style.INK
                ax.text(k, -j, names[j], ha="center", va="center", fontsize=9, color=white, zorder=4)
        dead = [f"{names[graph.src[e]]}→{names[graph.dst[e]]}" for e in np.flatnonzero(~alive)]
        names_of_dead = ", ".join(sorted(dead)) or "none"
        style.panel_title(ax, f"{ticks} ticks, dead edges: {names_of_dead}")
        ax.set_xticks(range(ticks + 1), [f"tick {k}" for k in range(ticks + 1)])
        ax.set_yticks([])
        ax.set_xlim(-0.35, ticks + 0.35)
        ax.set_ylim(-5.5, 0.5)
        style.quiet_axes(ax)
        ax.spines[["left", "bottom"]].set_visible(False)
    kinds = [(USED, "live and needed"), (LIVE, "live only"), (NEEDED, "needed only (still 0)"), (NONE, "neither")]
    handles = [figure.axes[0].plot([], [], "o", ms=8, mfc=fill, mec=style.INK, mew=0.8)[0] for fill, _ in kinds]
    figure.legend(handles, [name for _, name in kinds], **style.legend_options(loc="outside lower center", ncols=4))
    return figure


def draw_reach() -> Figure:
    """Draw how far the influence of one neuron spreads, and how many derivatives that makes."""
    n = 60
    rng = np.random.default_rng(0)
    ring = [(1 + k, 1 + (k + step) % n) for k in range(n) for step in (1, 2)]
    sparse = [(1 + int(j), 1 + k) for k in range(n) for j in rng.choice(n, 3, replace=False)]
    wire = [(0, 1), (n, n + 1)]
    graphs = {
        "self-loops only": [(1 + k, 1 + k) for k in range(n)],
        "ring, 2 in-edges per neuron": ring,
        "random, 3 in-edges per neuron": sparse,
        "all connected": [(1 + j, 1 + k) for j in range(n) for k in range(n) if j != k],
    }
    figure = Figure(figsize=(11, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    steps = np.arange(13)
    for (name, edges), colour in zip(graphs.items(), style.CLASSES, strict=False):
        A = hops(Topology(1, n, 1, edges + wire, bias=False))[1 : n + 1, 1 : n + 1].astype(float)
        now, reached = np.eye(n), []
        for _ in steps:
            reached.append((now > 0).sum(axis=1).mean())
            now = np.minimum(now @ A, 1.0)
        left.plot(steps, reached, "o-", ms=3, color=colour, label=name)
        # There is one tangent per tick m < K - 2. It is carried to the tick before the last one.
        carried = [sum(sum(reached[: K - 1 - m]) for m in range(1, K - 2)) for K in steps]
        right.plot(steps, carried, "o-", ms=3, color=colour)
    for ax in (left, right):
        style.quiet_axes(ax)
    style.axis_names(left, "hops", "neurons (of 60)")
    style.panel_title(left, "Neurons that one neuron influences")
    left.legend(**style.legend_options(loc="center right"))
    right.set_yscale("symlog", linthresh=1)
    style.axis_names(right, "ticks", "derivatives carried per neuron")
    style.panel_title(right, "Derivatives that the factored method carries")
    return figure


def draw_blocks() -> Figure:
    """Draw which derivatives of neurons with respect to edges can be non-zero on a stream."""
    h = 12
    graphs = {
        "columns": Topology.columns(2, h, 1),
        "cascade of columns": Topology.cascade_of_columns(2, h, 1, per_stage=4),
        "all connected": Topology.mesh(2, h, 1, self_loops=True),
    }
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    for ax, (name, graph) in zip(figure.subplots(1, 3), graphs.items(), strict=True):
        A = hops(graph)
        reach = np.eye(len(A), dtype=bool)
        for _ in range(len(A)):
            reach |= (reach.astype(int) @ A.astype(int)) > 0
        order = np.lexsort((graph.src, graph.dst))
        order = order[graph.dst[order] >= graph.n_clamped]
        nonzero = reach[graph.dst[order]][:, graph.n_clamped :].T
        ax.imshow(
            np.where(nonzero, 1.0, np.nan), cmap="Blues", vmin=0, vmax=1.4, aspect="auto", interpolation="nearest"
        )
        style.quiet_axes(ax)
        style.axis_names(ax, "edge, sorted by target neuron", "neuron" if ax is figure.axes[0] else "")
        share = nonzero.mean()
        style.panel_title(ax, f"{name}: {share:.0%} of {nonzero.size:,}, {graph.influence_cost():,} multiply-adds")
    return figure


def draw_price() -> Figure:
    """Draw the cost of a gradient by the number of ticks, as `Mesh.explain` counts it."""
    rng = np.random.default_rng(0)
    edges = [(int(j), 6 + k) for k in range(20) for j in rng.choice(26, 2, replace=False)]
    edges += [(int(j), 26 + k) for k in range(3) for j in rng.choice(np.arange(6, 26), 5, replace=False)]
    graphs = {
        "5-20-3, two in-edges per hidden neuron": Topology(5, 20, 3, np.unique(edges, axis=0)),
        "5-20-3, all connected": Topology.mesh(5, 20, 3),
    }
    lines = {
        "factored": (style.POSITIVE, "-"),
        "influence": (style.CLASSES[2], "-"),
        "adjoint": (style.NEGATIVE, "--"),
    }
    figure = Figure(figsize=(11, 3.9), layout="constrained")
    ticks = [4, 5, 6, 8, 10, 12, 16, 20, 24]
    for ax, (name, graph) in zip(figure.subplots(1, 2), graphs.items(), strict=True):
        found: dict[str, list[float]] = {method: [] for method in lines}
        for K in ticks:
            decision = Mesh(graph, ticks=K, activation="tanh", random_state=0).explain(64).decision
            for method, values in found.items():
                values.append(decision.cost(method).multiply_adds)
        for method, values in found.items():
            colour, dashes = lines[method]
            label = f"{method} ({'backprop' if method == 'adjoint' else 'forward'})"
            ax.plot(ticks, values, dashes, color=colour, label=label)
        ax.set_yscale("log")
        ax.set_xticks([4, 8, 12, 16, 20, 24])
        style.quiet_axes(ax)
        style.axis_names(ax, "ticks", "multiply-adds per sample")
        style.panel_title(ax, name)
    figure.axes[0].legend(**style.legend_options(loc="upper left"))
    return figure


if __name__ == "__main__":
    figures = {"ticks": draw_ticks, "reach": draw_reach, "blocks": draw_blocks, "price": draw_price}
    with style.clean_style():
        for name, draw in figures.items():
            save_figure(draw(), HERE / f"mathematics-{name}.svg")
