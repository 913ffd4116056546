"""How good predictions on a stream were over time, beside predictions that need no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meshnn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_stream"]

FloatArray = NDArray[np.float64]
_MODEL, _WHOLE, _FIRST, _SECOND = style.POSITIVE, style.INK, style.NEGATIVE, style.FAINT

#: By kind: the panels, each with its axis and its lines: column, what the legend says, colour, dashes.
_PANELS = {
    "classify": (
        ("accuracy", (("accuracy window", "model, last {window:,} rows", _MODEL, "-"),
                      ("accuracy", "model, all rows", _WHOLE, "--"),
                      ("no change window", "class of the row before", _FIRST, "-"),
                      ("majority window", "most frequent class", _SECOND, "-"))),
        ("log loss", (("log loss window", "model, last {window:,} rows", _MODEL, "-"),
                      ("log loss", "model, all rows", _WHOLE, "--"),
                      ("class frequencies window", "class frequencies", _SECOND, "-"))),
    ),
    "regress": (
        ("MAE", (("MAE window", "model, last {window:,} rows", _MODEL, "-"),
                 ("MAE", "model, all rows", _WHOLE, "--"),
                 ("MAE of the last window", "value of the row before", _FIRST, "-"),
                 ("MAE of the mean window", "running mean", _SECOND, "-"))),
        ("R²", (("R2 window", "model, last {window:,} rows", _MODEL, "-"),
                ("R2", "model, all rows", _WHOLE, "--"))),
    ),
}  # fmt: skip


def plot_stream(curve: Mapping[str, FloatArray], *, kind: str, window: int, title: str) -> Figure:
    """Draw the scores of a stream by row.

    Parameters
    ----------
    curve : mapping of names to arrays of equal length
        As `curve` of the scores gives it; `row` is across.
    kind : "classify" or "regress"
    window : int
        Rows of the running scores.
    title : str

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn.plots.stream import plot_stream
    >>> figure = plot_stream({"row": np.arange(3.0), "MAE": np.ones(3)}, kind="regress", window=10, title="load")
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['MAE', 'R²']
    """
    style.require_matplotlib()
    from matplotlib.figure import Figure

    with style.clean_style():
        figure = Figure(figsize=(7.2, 5.4), layout="constrained")
        style.page_title(figure, title)
        axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for ax, (name, lines) in zip(axes, _PANELS[kind], strict=True):
            _draw_panel(ax, curve, name, lines, window)
        style.axis_names(axes[1], "row", _PANELS[kind][1][0])
        axes[0].tick_params(labelbottom=False)
    return figure


def _draw_panel(
    ax: Axes, curve: Mapping[str, FloatArray], name: str, lines: tuple[tuple[str, str, str, str], ...], window: int
) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    style.quiet_axes(ax)
    rows = np.asarray(curve["row"], np.float64)
    shown = []
    for column, label, colour, dashes in lines:
        y = np.asarray(curve.get(column, np.full(len(rows), np.nan)), np.float64)
        y = np.where(np.isfinite(y), y, np.nan)
        if np.isfinite(y).any():
            marker = "o" if np.isfinite(y).sum() == 1 else ""  # a line of one point is not seen
            faint = 0.9 if colour == _MODEL else 0.8
            ax.plot(rows, y, dashes, color=colour, alpha=faint, lw=1.5 if colour == _MODEL else 1.1, marker=marker,
                    ms=4, label=label.format(window=window))  # fmt: skip
            shown.append(y)
    style.axis_names(ax, "", name)
    if not shown:
        ax.text(0.5, 0.5, "nothing to show", transform=ax.transAxes, ha="center", color=style.FAINT)
        return
    _limit(ax, name, np.concatenate(shown))
    ax.margins(x=0.02)
    ax.grid(axis="y", color="#e4e4e4", lw=0.6)
    ax.set_axisbelow(True)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.01), "ncols": 4, "columnspacing": 1.2}
    ax.legend(**style.legend_options(**place))


def _limit(ax: Axes, name: str, values: FloatArray) -> None:
    """What the first few rows did must not flatten the rest."""
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, [0.02, 0.98])
    least, most = float(known.min()), float(known.max())
    room = max(float(high - low), 1e-12)
    bottom, top = max(least, float(low) - room), min(most, float(high) + room)
    if name == "accuracy":
        top = min(top + 0.05 * room, 1.0 + 0.02 * room)
    pad = 0.05 * max(top - bottom, 1e-12)
    ax.set_ylim(bottom - pad, top + pad)
