"""Curves: training by epoch, scores of a stream by row, a series and its forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.errors import MeshError
from meshnn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Columns", "draw_history", "plot_forecast", "plot_stream"]

#: Columns of a history by name; None and NaN are missing values.
Columns = Mapping[str, Sequence[float | None] | NDArray[np.generic]]

_HISTORY = {"loss": (style.POSITIVE, "-"), "validation": (style.INK, "--"), "accuracy": (style.NEGATIVE, "-")}


def draw_history(ax: Axes, columns: Columns, *, chosen: int | None = None) -> None:
    """Draw the loss by epoch, the validation loss (dashed), and the accuracy on a second axis.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    columns : mapping of names to sequences of equal length
        epoch, loss, validation, accuracy and restart are used; any may be missing and any value None or NaN.
    chosen : int, optional
        The restart that was kept; the others are drawn in pale colours.

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
    from matplotlib.lines import Line2D

    style.panel_title(ax, "Training", above=18)
    rows = max((len(values) for values in columns.values()), default=0)
    lines = {name: _column(columns, name, rows) for name in _HISTORY}
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
        colour, dashes = _HISTORY[name]
        for run, alpha in runs:
            width, axes = 1.6 if alpha == 1.0 else 1.0, right if name == "accuracy" else ax
            style.draw_line(axes, epoch[run], y[run], dashes, color=colour, alpha=alpha, lw=width)
    if losses := [y for name, y in lines.items() if name != "accuracy"]:
        _scale_losses(ax, np.concatenate(losses))
    else:
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
    ax.margins(x=0.02)
    ax.locator_params(axis="x", nbins=6, integer=True)
    ax.set_xlabel(across, fontsize=style.SMALL, color=style.INK)
    looks = [(name, *_HISTORY[name], 1.6, 1.0) for name in lines]
    if len(runs) > 1 and chosen is not None:
        looks.append(("other runs", style.POSITIVE, "-", 1.0, 0.35))
    style.legend_above(ax, [Line2D([], [], color=c, ls=ls, lw=lw, alpha=a, label=n) for n, c, ls, lw, a in looks])


def _column(columns: Columns, name: str, rows: int) -> FloatArray:
    """Return a column as floats, NaN for missing values."""
    values = columns.get(name)
    if values is None:
        return np.full(rows, np.nan)
    if len(values) != rows:
        raise MeshError(f"the column {name!r} of the history has {len(values)} rows, another has {rows}")
    try:
        column = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MeshError(f"the column {name!r} of the history must hold numbers: {error}") from None
    column[~np.isfinite(column)] = np.nan  # an infinite loss counts as missing
    return column


def _runs(restart: FloatArray, chosen: int | None) -> list[tuple[Array, float]]:
    """Return the rows and the opacity of each restart; the chosen one is last, on top."""
    restart = np.nan_to_num(restart)
    found = np.unique(restart)
    if chosen is None or chosen not in found:
        return [(restart == k, 1.0 if len(found) == 1 else 0.7) for k in found]
    return [(restart == k, 0.25) for k in found if k != chosen] + [(restart == chosen, 1.0)]


def _right_axis(ax: Axes) -> Axes:
    """Return the axis on the right, for the accuracy."""
    right, colour = ax.twinx(), _HISTORY["accuracy"][0]
    style.quiet_axes(right)
    right.spines["left"].set_visible(False)
    right.spines["right"].set_visible(True)
    right.set_ylim(0.0, 1.02)
    right.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0])
    right.tick_params(axis="y", labelcolor=colour)
    right.set_ylabel("accuracy", fontsize=style.SMALL, color=colour)
    return right


def _scale_losses(ax: Axes, losses: FloatArray) -> None:
    """Set a logarithmic axis if all losses are positive, with readable labels even within one decade."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    colour, low, high = _HISTORY["loss"][0], float(np.nanmin(losses)), float(np.nanmax(losses))
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
    ax.minorticks_off()
    ax.yaxis.set_major_formatter("{x:.4g}")


# -- streams -----------------------------------------------------------------------------------------------------

#: Panels per kind: the name of the axis, the column, and baselines as (column, label, colour).
_PANELS = {
    "classify": (
        ("accuracy", "accuracy", (("no change window", "class of the row before", style.NEGATIVE),
                                  ("majority window", "most frequent class", style.FAINT))),
        ("log loss", "log loss", (("class frequencies window", "class frequencies", style.FAINT),)),
    ),
    "regress": (
        ("MAE", "MAE", (("MAE of the last window", "value of the row before", style.NEGATIVE),
                        ("MAE of the mean window", "running mean", style.FAINT))),
        ("R²", "R2", ()),
    ),
}  # fmt: skip


def plot_stream(curve: Mapping[str, FloatArray], *, kind: str, window: int, title: str) -> Figure:
    """Draw the scores of a stream by row, and those of simple baselines.

    Parameters
    ----------
    curve : mapping of names to arrays of equal length
        As returned by `curve` of the scores; `row` is the horizontal axis.
    kind : "classify" or "regress"
    window : int
        Number of rows in the window of the running scores.
    title : str

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn.plots import plot_stream
    >>> figure = plot_stream({"row": np.arange(3.0), "MAE": np.ones(3)}, kind="regress", window=10, title="load")
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['MAE', 'R²']
    """
    style.require_matplotlib()
    with style.clean_style():
        figure = style.new_figure(7.2, 5.4)
        style.page_title(figure, title)
        axes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for ax, (name, score, baselines) in zip(axes, _PANELS[kind], strict=True):
            lines = [
                (f"{score} window", f"model, last {window:,} rows", style.POSITIVE, "-"),
                (score, "model, all rows", style.INK, "--"),
                *((*baseline, "-") for baseline in baselines),
            ]
            _draw_scores(ax, curve, lines)
            style.axis_names(ax, "row" if ax is axes[1] else "", name)
        axes[0].tick_params(labelbottom=False)
    return figure


def _draw_scores(ax: Axes, curve: Mapping[str, FloatArray], lines: Sequence[tuple[str, str, str, str]]) -> None:
    style.quiet_axes(ax)
    rows, shown = np.asarray(curve["row"], np.float64), []
    for column, label, colour, dashes in lines:
        y = _column(curve, column, len(rows))
        if np.isfinite(y).any():
            look = {"alpha": 0.9, "lw": 1.5} if colour == style.POSITIVE else {"alpha": 0.8, "lw": 1.1}
            style.draw_line(ax, rows, y, dashes, color=colour, label=label, **look)
            shown.append(y)
    if not shown:
        style.empty_panel(ax, "no scores")
        return
    # the first few rows must not determine the scale
    known = np.concatenate(shown)
    low, high = np.nanquantile(known, [0.02, 0.98])
    room = max(float(high - low), 1e-12)
    bottom, top = max(np.nanmin(known), low - room), min(np.nanmax(known), high + room)
    pad = 0.05 * max(top - bottom, 1e-12)
    ax.set_ylim(bottom - pad, top + pad)
    ax.margins(x=0.02)
    ax.grid(axis="y", color="#e4e4e4", lw=0.6)
    ax.set_axisbelow(True)
    ax.locator_params(axis="y", nbins=5)
    ax.locator_params(axis="x", nbins=6, integer=True)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:.4g}")
    style.legend_above(ax)


# -- forecasts ---------------------------------------------------------------------------------------------------


def plot_forecast(
    *,
    times: Array,
    values: Array,
    ahead: Array,
    forecast: Array,
    lower: Array,
    upper: Array,
    level: float,
    past: Sequence[tuple[Array, Array]] = (),
    errors: Mapping[str, Array] | None = None,
    name: str = "value",
    across: str = "",
    title: str = "",
) -> Figure:
    """Draw a series, its forecast with an interval, and the errors of a back-test by steps ahead.

    Parameters
    ----------
    times, values : arrays (n,)
        The series; times are datetime64 or numbers, missing values are NaN.
    ahead, forecast, lower, upper : arrays (horizon,)
    level : float
        Probability of the interval.
    past : pairs of times and values
        Earlier forecasts.
    errors : names with arrays (horizon,), optional
        Mean absolute errors by steps ahead; those of the model come first.
    name, across, title : str
        Names of the series, of its times, and of the figure.

    Examples
    --------
    >>> import numpy as np
    >>> from meshnn.plots import plot_forecast
    >>> t, h = np.arange(40.0), np.arange(40.0, 44.0)
    >>> band = {"lower": h - 1, "upper": h + 1, "level": 0.9}
    >>> figure = plot_forecast(times=t, values=t, ahead=h, forecast=h, name="bikes", **band)
    >>> figure.axes[0].get_ylabel()
    'bikes'
    """
    style.require_matplotlib()
    shown = {k: v for k, v in (errors or {}).items() if np.isfinite(v).any()}
    with style.clean_style():
        figure = style.new_figure(11.0 if shown else 9.0, 4.4)
        left, *right = figure.subplots(1, 1 + bool(shown), squeeze=False, width_ratios=[2.6, 1.0][: 1 + bool(shown)])[0]
        if shown:
            _draw_errors(right[0], shown, name)
        _draw_series(left, times, values, past, len(ahead))
        known = np.flatnonzero(np.isfinite(values))[-1:]  # the forecast starts at the last known value
        style.draw_line(left, np.concatenate([times[known], ahead]), np.concatenate([values[known], forecast]),
                        color=style.POSITIVE, lw=1.8, label="forecast")  # fmt: skip
        band = {"color": style.POSITIVE, "alpha": 0.18, "lw": 0, "label": f"{100 * level:g}% interval"}
        left.fill_between(ahead, lower, upper, **band)
        for at in times[known]:
            left.axvline(at, color=style.FAINT, lw=0.8, ls=":")
        left.margins(x=0.01)
        style.axis_names(left, across, style.shorten(name, 40))
        style.legend_above(left)
        if title:
            style.page_title(figure, title)
        style.settle(figure)
    return figure


def _draw_series(ax: Axes, times: Array, values: Array, past: Sequence[tuple[Array, Array]], horizon: int) -> None:
    """Draw the last part of a series, and the earlier forecasts in it."""
    style.panel_title(ax, "Series and forecast", above=18)
    style.quiet_axes(ax)
    first = max(len(times) - max(5 * horizon, 60), 0)
    ax.plot(times[first:], values[first:], color=style.INK, lw=1.2, label="series")
    label: str | None = "earlier forecasts"
    for when, what in past:
        if len(when) and (when >= times[first]).all():
            style.draw_line(ax, when, what, color=style.NEGATIVE, lw=1.3, alpha=0.9, label=label)
            label = None
    if np.asarray(times).dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator: Any = AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _draw_errors(ax: Axes, errors: Mapping[str, Array], name: str) -> None:
    style.panel_title(ax, "Back-test", above=18)
    style.quiet_axes(ax)
    looks = ((style.POSITIVE, "-", 1.8), (style.FAINT, "--", 1.2), (style.NEGATIVE, ":", 1.4))
    for (label, by_step), (colour, dashes, width) in zip(errors.items(), looks, strict=False):
        style.draw_line(ax, np.arange(1, len(by_step) + 1), by_step, dashes, color=colour, lw=width, label=label)
    ax.set_ylim(bottom=0.0)
    ax.margins(x=0.02)
    ax.locator_params(axis="x", nbins=6, integer=True, min_n_ticks=1)
    style.axis_names(ax, "steps ahead", f"mean absolute error ({style.shorten(name, 24)})")
    style.legend_above(ax)
