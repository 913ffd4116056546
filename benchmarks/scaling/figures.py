"""Curves on logarithmic axes: measured time and memory, and the predicted memory of our methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from meshnn.plots import style
from meshnn.plots.save import save_figure
from scaling.analysis import Curve
from scaling.study import CONTESTANTS, OURS, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_sweep"]

#: Colours by contestant: strong for meshnn, light for others.
LOOKS = {
    "factored": (style.CLASSES[0], "o"), "influence": (style.CLASSES[2], "s"), "adjoint": (style.CLASSES[5], "D"),
    "tensor": (style.CLASSES[8], "^"), "torch dense": (style.CLASSES[1], "v"), "torch sparse": (style.CLASSES[6], "<"),
    "jax dense": (style.CLASSES[3], "P"), "jax edges": (style.CLASSES[4], "X"), "sklearn": (style.CLASSES[7], "*"),
}  # fmt: skip


def draw_sweep(sweep: Sweep, curves: Sequence[Curve], out: Path, kinds: Sequence[str] = ("svg", "png")) -> None:
    """Draw time and memory of a sweep."""
    from matplotlib.figure import Figure

    with style.clean_style():
        figure = Figure(figsize=(11.0, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for curve in curves:
            _line(left, curve.contestant, curve.x, curve.seconds, curve.status)
            _line(right, curve.contestant, curve.x, curve.memory, curve.status)
            if curve.contestant in OURS:
                _prediction(right, curve.contestant, curve.x, curve.predicted_memory)
        for ax, what, up in ((left, "Time of a gradient", "seconds"), (right, "Peak memory of a gradient", "bytes")):
            ax.set_xscale("log")
            if any(len(line.get_ydata()) for line in ax.lines if line.get_transform() == ax.transData):
                ax.set_yscale("log")  # all values are 0 or missing
            style.quiet_axes(ax)
            style.panel_title(ax, what)
            style.axis_names(ax, sweep.axis, up)
            ax.grid(True, which="major", color="#eeeeee", linewidth=0.8)
            ax.set_axisbelow(True)
            _whole(ax, [net[0] for net in sweep.nets])
        left.plot([], [], color=style.INK, linestyle=(0, (3, 2)), linewidth=1.0, label="predicted memory")
        left.plot([], [], color=style.FAINT, linestyle="", marker="x", label="did not fit or too slow from here on")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", **style.legend_options(labelspacing=0.9))
        style.page_title(figure, sweep.title)
        _save(figure, out, f"scaling-{sweep.name}", kinds)


def _line(ax: Axes, contestant: str, x: Sequence[float], y: Sequence[float | None], status: Sequence[str]) -> None:
    colour, marker = LOOKS[contestant]
    strong = contestant in OURS
    there = [(a, b) for a, b in zip(x, y, strict=True) if b is not None and b > 0]
    ax.plot(
        [a for a, _ in there], [b for _, b in there], color=colour, marker=marker, markersize=5 if strong else 4,
        linewidth=1.8 if strong else 1.0, alpha=1.0 if strong else 0.85, label=CONTESTANTS[contestant],
        zorder=3 if strong else 2,
    )  # fmt: skip
    gave_up = next((a for a, s in zip(x, status, strict=True) if s in ("did not fit", "too slow")), None)
    if gave_up is not None:  # at the upper edge, at the first missing point
        ax.plot([gave_up], [0.97], color=colour, marker="x", markersize=7, markeredgewidth=2, linestyle="",
                transform=ax.get_xaxis_transform(), zorder=4)  # fmt: skip


def _prediction(ax: Axes, contestant: str, x: Sequence[float], y: Sequence[float | None]) -> None:
    there = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
    ax.plot([a for a, _ in there], [b for _, b in there], color=LOOKS[contestant][0], linestyle=(0, (3, 2)),
            linewidth=1.0, zorder=4)  # fmt: skip


def _whole(ax: Axes, x: Sequence[float]) -> None:
    """Add margins, and label few values one by one, because powers of ten would label only one or two of them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ax.set_xlim(min(x) / 1.3, max(x) * 1.3)
    if max(x) / min(x) < 300:
        ax.xaxis.set_major_locator(FixedLocator(list(x)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_locator(NullLocator())


def _save(figure: Figure, out: Path, name: str, kinds: Sequence[str]) -> None:
    for kind in kinds:
        save_figure(figure, out / f"{name}.{kind}")
