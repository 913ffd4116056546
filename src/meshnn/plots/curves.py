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

_LOSS, _VALIDATION, _ACCURACY = style.POSITIVE, style.INK, style.NEGATIVE


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
    style.panel_title(ax, "Training", above=18)  # the legend stands between
    rows = max((len(values) for values in columns.values()), default=0)
    loss, validation, accuracy = (_column(columns, name, rows) for name in ("loss", "validation", "accuracy"))
    drawn = np.isfinite(loss) | np.isfinite(validation) | np.isfinite(accuracy)
    if not drawn.any():
        style.empty_panel(ax, "no history in this file")
        return
    epoch = _column(columns, "epoch", rows)
    counted = np.isfinite(epoch).any()
    if not counted:
        epoch = np.arange(1.0, rows + 1)
    style.quiet_axes(ax)
    runs = _runs(_column(columns, "restart", rows), chosen)
    legend: dict[str, str] = {}
    losses = np.concatenate([loss[np.isfinite(loss)], validation[np.isfinite(validation)]])
    if losses.size:
        _draw_lines(ax, epoch, loss, runs, _LOSS, "-")
        _draw_lines(ax, epoch, validation, runs, _VALIDATION, "--")
        _scale_losses(ax, losses)
        if np.isfinite(loss).any():
            legend["loss"] = _LOSS
        if np.isfinite(validation).any():
            legend["validation"] = _VALIDATION
    else:
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
    if np.isfinite(accuracy).any():
        _draw_accuracy(ax, epoch, accuracy, runs)
        legend["accuracy"] = _ACCURACY
    _scale_epochs(ax, epoch[drawn & np.isfinite(epoch)])
    ax.set_xlabel("epoch" if counted else "row", fontsize=style.SMALL, color=style.INK)
    _draw_legend(ax, legend, faint=len(runs) > 1 and chosen is not None)


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


def _draw_lines(
    ax: Axes, x: FloatArray, y: FloatArray, runs: list[tuple[BoolArray, float]], colour: str, dashes: str
) -> None:
    for rows, alpha in runs:
        shown = rows & np.isfinite(x)
        if not np.isfinite(y[shown]).any():
            continue
        alone = np.isfinite(y[shown]).sum() == 1  # a line of one point is not seen
        width = 1.6 if alpha == 1.0 else 1.0
        marker = "o" if alone else ""
        ax.plot(x[shown], y[shown], dashes, color=colour, alpha=alpha, lw=width, marker=marker, ms=4)


def _draw_accuracy(ax: Axes, epoch: FloatArray, accuracy: FloatArray, runs: list[tuple[BoolArray, float]]) -> None:
    right = ax.twinx()
    style.quiet_axes(right)
    right.spines["left"].set_visible(False)
    right.spines["right"].set_visible(True)
    _draw_lines(right, epoch, accuracy, runs, _ACCURACY, "-")
    right.set_ylim(0.0, 1.02)
    right.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0])
    right.tick_params(axis="y", labelcolor=_ACCURACY)
    right.set_ylabel("accuracy", fontsize=style.SMALL, color=_ACCURACY)


def _scale_losses(ax: Axes, losses: FloatArray) -> None:
    """A log axis if all are positive, with plain numbers on it even if it is much shorter than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    ax.set_ylabel("loss", fontsize=style.SMALL, color=_LOSS)
    ax.tick_params(axis="y", labelcolor=_LOSS)
    low, high = float(losses.min()), float(losses.max())
    if low <= 0.0:
        ax.yaxis.set_major_locator(MaxNLocator(5))
        return
    ax.set_yscale("log")
    if low == high:
        ax.set_ylim(low / 2, low * 2)
    decades = np.log10(high) - np.log10(low)
    if decades < 0.7:
        ax.yaxis.set_major_locator(MaxNLocator(5))
    else:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,), numticks=8))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))


def _scale_epochs(ax: Axes, epoch: FloatArray) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = (float(epoch.min()), float(epoch.max())) if epoch.size else (0.0, 1.0)
    room = 0.02 * (high - low) or 1.0
    ax.set_xlim(low - room, high + room)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _draw_legend(ax: Axes, lines: dict[str, str], faint: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, lw=1.6, ls="--" if name == "validation" else "-", label=name)
        for name, colour in lines.items()
    ]
    if faint:
        handles.append(Line2D([], [], color=_LOSS, lw=1.0, alpha=0.35, label="other runs"))
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.01), "ncols": len(handles), "columnspacing": 1.2}
    ax.legend(handles=handles, **style.legend_options(**place))
