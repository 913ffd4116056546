"""Draw the results of benchmarks/temporal.py, without measuring anything.

python benchmarks/temporal_figures.py [results/temporal.json] [docs/pictures]
"""

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from meshnn.plots import save_figure, style

TASKS = {
    "delayed xor": ("Delayed XOR: the bit 2 steps ago, xor the bit 5 steps ago", "error rate"),
    "trace patterning": (
        "Trace patterning: a signal 8 steps after a pattern",
        "error rate of steps with a due signal",
    ),
}
LOOKS = ((style.CLASSES[0], "-"), (style.CLASSES[2], "-"), (style.CLASSES[1], "-"), (style.CLASSES[7], (0, (3, 2))))


def _axes(ax, title, across, up):
    style.quiet_axes(ax)
    style.panel_title(ax, title)
    style.axis_names(ax, across, up)
    ax.grid(True, which="major", color="#eeeeee", linewidth=0.8)
    ax.set_axisbelow(True)


def draw_memory(found, path):
    """Draw the running error of nets with memory and of one without: mean and range over seeds."""
    with style.clean_style():
        figure = Figure(figsize=(11.0, 4.2), layout="constrained")
        for ax, (task, part) in zip(figure.subplots(1, 2), found.items(), strict=True):
            for row, (colour, dashes) in zip(part["rows"], LOOKS, strict=True):
                curves = np.array(row["curves"])
                steps = part["window"] * (np.arange(curves.shape[1]) + 1)
                ax.fill_between(steps, curves.min(0), curves.max(0), color=colour, alpha=0.12, linewidth=0)
                ax.plot(steps, curves.mean(0), color=colour, linestyle=dashes, linewidth=1.8, label=row["what"])
            ax.axhline(0.5, color=style.FAINT, linewidth=0.8, linestyle=":")
            ax.set_ylim(-0.01, 0.6)
            ax.set_xlim(0, part["steps"])
            title, up = TASKS[task]
            _axes(ax, title, "steps", up)
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, **style.legend_options())
        save_figure(figure, path)


def draw_price(found, path):
    """Draw agreement, cost and error by truncation of the influences."""
    nets = list(dict.fromkeys(row["net"] for row in found["rows"]))
    with style.clean_style():
        figure = Figure(figsize=(11.0, 4.0), layout="constrained")
        agree, cost, error = figure.subplots(1, 3)
        for net, colour, marker in zip(nets, (style.CLASSES[0], style.CLASSES[5]), ("o", "s"), strict=True):
            rows = [row for row in found["rows"] if row["net"] == net]
            names = [row["method"] for row in rows]
            look = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.6}
            agree.plot(names, [row["cosine"][-1] for row in rows], **look, label=net)
            cost.plot(names, [row["microseconds"] for row in rows], **look)
            madds = [row["multiply-adds"] / 1000 for row in rows]
            cost.plot(names, madds, **look | {"linestyle": (0, (3, 2)), "linewidth": 1.0, "markersize": 3})
            error.plot(names, [row["overall"] for row in rows], **look)
        for ax in (cost, error):
            ax.set_yscale("log")
        cost.plot([], [], color=style.INK, label="microseconds, measured")
        cost.plot([], [], color=style.INK, linestyle=(0, (3, 2)), linewidth=1.0, label="thousand multiply-adds")
        _axes(
            agree, f"Agreement after {found['moments'][-1]:,} steps", "influence", "cosine to the exact gradient, mean"
        )
        _axes(cost, "Cost per step", "influence", "")
        _axes(error, f"Errors in all {found['steps']:,} steps", "influence", "error rate, mean over seeds")
        agree.legend(**style.legend_options())
        cost.legend(**style.legend_options())
        save_figure(figure, path)


def main():
    """Draw the available results."""
    source = Path(sys.argv[1] if len(sys.argv) > 1 else "results/temporal.json")
    out = Path(sys.argv[2] if len(sys.argv) > 2 else "docs/pictures")
    results = json.loads(source.read_text())
    for section, draw, name in (("memory", draw_memory, "stream-memory"), ("price", draw_price, "stream-price")):
        if section in results:
            draw(results[section]["found"], out / f"{name}.svg")
            print(f"wrote {out / name}.svg")


if __name__ == "__main__":
    main()
