"""A series, what was forecast of it, and what is forecast now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshnn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_forecast"]

Array = NDArray[Any]
#: Looks of the lines of errors, by their order.
_ERRORS = ((style.POSITIVE, "-", 1.8), (style.FAINT, "--", 1.2), (style.NEGATIVE, ":", 1.4))
#: Steps of the past that are shown, as many as so many horizons, but at least.
_SHOWN, _LEAST = 5, 60


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
    """Draw a forecast with its interval behind the series it continues; beside it errors of the past by steps ahead.

    Parameters
    ----------
    times, values : arrays (n,)
        The series; datetime64 or numbers, and NaN where a value is missing.
    ahead, forecast, lower, upper : arrays (horizon,)
    level : float
        Probability of the interval.
    past : pairs of times and values
        Forecasts that were made from points of the past.
    errors : names with arrays (horizon,), optional
        Mean absolute errors by steps ahead: of the model first.
    name, across, title : str
        Of the series, of its times, and what is written above.

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
    from matplotlib.figure import Figure

    shown = None if not errors else {k: v for k, v in errors.items() if np.isfinite(v).any()}
    with style.clean_style():
        figure = Figure(figsize=(11.0, 4.4) if shown else (9.0, 4.4), layout="constrained")
        if shown:
            left, right = figure.subplots(1, 2, width_ratios=[2.6, 1.0])
            _draw_errors(right, shown, name)
        else:
            left = figure.subplots()
        _draw_series(left, times, values, ahead, forecast, lower, upper, level, past)
        style.axis_names(left, across, style.shorten(name, 40))
        if title:
            style.page_title(figure, title)
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
    return figure


def _draw_series(
    ax: Axes, times: Array, values: Array, ahead: Array, forecast: Array, lower: Array, upper: Array, level: float,
    past: Sequence[tuple[Array, Array]],
) -> None:  # fmt: skip
    style.panel_title(ax, "Series and forecast", above=18)
    style.quiet_axes(ax)
    first = max(len(times) - max(_SHOWN * len(ahead), _LEAST), 0)
    times, values = times[first:], values[first:]
    ax.fill_between(ahead, lower, upper, color=style.POSITIVE, alpha=0.18, lw=0, label=f"{100 * level:g}% interval")
    ax.plot(times, values, color=style.INK, lw=1.2, label="series")
    drawn = False
    for when, what in past:
        late = when >= times[0]
        if late.all() and len(when):
            marker = "o" if len(when) == 1 else ""
            label = None if drawn else "forecasts of the past"
            ax.plot(when, what, color=style.NEGATIVE, lw=1.3, alpha=0.9, marker=marker, ms=3, label=label)
            drawn = True
    known = np.flatnonzero(np.isfinite(values))
    join, start = ([times[known[-1]]], [values[known[-1]]]) if known.size else ([], [])
    ax.plot([*join, *ahead], [*start, *forecast], color=style.POSITIVE, lw=1.8, label="forecast",
            marker="o" if len(ahead) == 1 else "", ms=4)  # fmt: skip
    if known.size:
        ax.axvline(times[known[-1]], color=style.FAINT, lw=0.8, ls=":")
    ax.margins(x=0.01)
    if np.asarray(times).dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator: Any = AutoDateLocator(minticks=4, maxticks=9)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda k: ["series", "forecasts of the past", "forecast"].index(labels[k])
                   if labels[k] in ("series", "forecasts of the past", "forecast") else 3)  # fmt: skip
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.01), "ncols": len(handles), "columnspacing": 1.2}
    ax.legend([handles[k] for k in order], [labels[k] for k in order], **style.legend_options(**place))


def _draw_errors(ax: Axes, errors: Mapping[str, Array], name: str) -> None:
    from matplotlib.ticker import MaxNLocator

    style.panel_title(ax, "Back-test", above=18)
    style.quiet_axes(ax)
    for (label, by_step), (colour, dashes, width) in zip(errors.items(), _ERRORS, strict=False):
        marker = "o" if np.isfinite(by_step).sum() == 1 else ""
        steps = np.arange(1, len(by_step) + 1)
        ax.plot(steps, by_step, dashes, color=colour, lw=width, marker=marker, ms=4, label=label)
    ax.set_ylim(bottom=0.0)
    ax.margins(x=0.02)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    style.axis_names(ax, "steps ahead", f"mean absolute error ({style.shorten(name, 24)})")
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.01), "ncols": len(errors), "columnspacing": 1.0}
    ax.legend(**style.legend_options(**place))
