"""How training went: loss, validation loss and accuracy by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import MeshError
from meshnn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Columns", "draw_history"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: The history of a training: a value a row by name of the column; None and NaN are gaps.
Columns = Mapping[str, Sequence[float | None] | NDArray[np.generic]]

_LOOKS = {"loss": (style.POSITIVE, "-"), "validation": (style.INK, "--"), "accuracy": (style.NEGATIVE, "-")}


def draw_history(ax: Axes, columns: Columns, *, chosen: int | None = None) -> None:
    """Draw the loss by epoch, the validation loss dashed, and the accuracy on an axis of its own on the right.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    columns : mapping of names to sequences of equal length
        Read are epoch, loss, validation, accuracy and restart; any may be missing and any value None or NaN.
    chosen : int, optional
        The restart that was kept; the others are drawn faint.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from meshnn.plots import draw_history
    >>> ax = Figure().subplots()
    >>> draw_history(ax, {"epoch": [1, 2, 3], "loss": [0.7, 0.2, None]})
    >>> ax.get_yscale(), ax.get_xlabel()
    ('log', 'epoch')
    """
    style.require_matplotlib()
    from matplotlib.ticker import MaxNLocator

    style.panel_title(ax, "Training", above=18)  # the legend stands between
    rows = max((len(values) for values in columns.values()), default=0)
    lines = {name: _column(columns, name, rows) for name in _LOOKS}
    lines = {name: y for name, y in lines.items() if np.isfinite(y).any()}
    if not lines:
        style.empty_panel(ax, "no history in this file")
        return
    epoch, across = _column(columns, "epoch", rows), "epoch"
    if np.isnan(epoch).all():
        epoch, across = np.arange(1.0, rows + 1), "row"
    style.quiet_axes(ax)
    runs = _runs(_column(columns, "restart", rows), chosen)
    right = _right_axis(ax) if "accuracy" in lines else ax
    for name, y in lines.items():
        _draw_line(right if name == "accuracy" else ax, epoch, y, runs, name)
    if losses := [y for name, y in lines.items() if name != "accuracy"]:
        _scale_losses(ax, np.concatenate(losses))
    else:
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
    ax.margins(x=0.02)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel(across, fontsize=style.SMALL, color=style.INK)
    _draw_legend(ax, list(lines), faint=len(runs) > 1 and chosen is not None)


def _column(columns: Columns, name: str, rows: int) -> FloatArray:
    """A column as floats, NaN for what is missing."""
    values = columns.get(name)
    if values is None:
        return np.full(rows, np.nan)
    if len(values) != rows:
        raise MeshError(f"the column {name!r} of the history has {len(values)} rows, another has {rows}")
    try:
        column = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MeshError(f"the column {name!r} of the history must hold numbers: {error}") from None
    column[~np.isfinite(column)] = np.nan  # a loss that overflowed is a gap, too
    return column


def _runs(restart: FloatArray, chosen: int | None) -> list[tuple[BoolArray, float]]:
    """The rows of each restart and how opaque it is drawn; the chosen one comes last, on top."""
    restart = np.nan_to_num(restart)
    found = np.unique(restart)
    if chosen is None or chosen not in found:
        return [(restart == k, 1.0 if len(found) == 1 else 0.7) for k in found]
    return [(restart == k, 0.25) for k in found if k != chosen] + [(restart == chosen, 1.0)]


def _draw_line(ax: Axes, x: FloatArray, y: FloatArray, runs: list[tuple[BoolArray, float]], name: str) -> None:
    colour, dashes = _LOOKS[name]
    for rows, alpha in runs:
        marker = "o" if np.isfinite(y[rows]).sum() == 1 else ""  # a line of one point is not seen
        width = 1.6 if alpha == 1.0 else 1.0
        ax.plot(x[rows], y[rows], dashes, color=colour, alpha=alpha, lw=width, marker=marker, ms=4)


def _right_axis(ax: Axes) -> Axes:
    """The axis of the accuracy."""
    right, colour = ax.twinx(), _LOOKS["accuracy"][0]
    style.quiet_axes(right)
    right.spines["left"].set_visible(False)
    right.spines["right"].set_visible(True)
    right.set_ylim(0.0, 1.02)
    right.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0])
    right.tick_params(axis="y", labelcolor=colour)
    right.set_ylabel("accuracy", fontsize=style.SMALL, color=colour)
    return right


def _scale_losses(ax: Axes, losses: FloatArray) -> None:
    """A log axis if all are positive, with plain numbers on it even if it is much shorter than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    colour, low, high = _LOOKS["loss"][0], float(np.nanmin(losses)), float(np.nanmax(losses))
    ax.set_ylabel("loss", fontsize=style.SMALL, color=colour)
    ax.tick_params(axis="y", labelcolor=colour)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    if low <= 0.0:
        return
    ax.set_yscale("log")
    if low == high:
        ax.set_ylim(low / 2, low * 2)
    decades = np.log10(high) - np.log10(low)
    often = LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,), numticks=8)
    ax.yaxis.set_major_locator(MaxNLocator(5) if decades < 0.7 else often)
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))


def _draw_legend(ax: Axes, names: list[str], faint: bool) -> None:
    from matplotlib.lines import Line2D

    looks = [(name, *_LOOKS[name], 1.6, 1.0) for name in names]
    if faint:
        looks.append(("other runs", _LOOKS["loss"][0], "-", 1.0, 0.35))
    handles = [Line2D([], [], color=c, ls=ls, lw=lw, alpha=alpha, label=name) for name, c, ls, lw, alpha in looks]
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.01), "ncols": len(handles), "columnspacing": 1.2}
    ax.legend(handles=handles, **style.legend_options(**place))
