"""Decision regions of a net with two features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshnn.arrays import BoolArray, FloatArray, IntArray
from meshnn.errors import MeshError
from meshnn.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_regions"]


def draw_regions(
    ax: Axes,
    decide: Callable[[FloatArray], ArrayLike],
    bounds: tuple[float, float, float, float],
    *,
    classes: Sequence[object] | None = None,
    feature_names: Sequence[object] | None = None,
    points: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    test_mask: ArrayLike | None = None,
) -> None:
    """Draw the predicted class (in darker colours if more probable) or the predicted value by two features.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    decide : callable with an array (m, 2)
        Returns probabilities (m, k), or (m, 1) for the second of two classes, or values (m,).
    bounds : (left, right, bottom, top)
    classes : sequence, optional
        Names of the classes; default: 0, 1, ...
    feature_names : sequence of 2 names, optional
    points : array_like (p, 2), optional
        Samples to draw; at most 2,000 of them are used.
    labels : array_like (p,), optional
        Their classes (elements of `classes`, or numbers from 0) or values.
    test_mask : array_like of bool (p,), optional
        Marks test points, which are drawn as diamonds.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from meshnn.plots import draw_regions
    >>> ax = Figure().subplots()
    >>> draw_regions(ax, lambda X: X[:, 0] * X[:, 1], (-1, 1, -1, 1), feature_names=["a", "b"])
    >>> ax.get_title(loc="left"), ax.get_xlabel()
    ('Output', 'a')
    """
    style.require_matplotlib()
    limits = np.asarray(bounds, dtype=np.float64)
    if limits.shape != (4,) or not np.isfinite(limits).all() or (limits[::2] >= limits[1::2]).any():
        raise MeshError(f"bounds must be (left, right, bottom, top) with left < right and bottom < top, got {bounds!r}")
    middles = (np.arange(200) + 0.5) / 200  # of 200 cells along each side
    x, y = (low + (high - low) * middles for low, high in limits.reshape(2, 2))
    answer = _answers(decide, np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))
    names = style.as_names("feature_names", feature_names, 2) or ["x1", "x2"]
    samples = _Samples.checked(points, labels, test_mask)
    style.quiet_axes(ax)
    picture = {"extent": limits.tolist(), "origin": "lower", "aspect": "auto", "interpolation": "nearest"}
    if answer.ndim == 1:
        _draw_values(ax, x, y, answer, samples, picture)
    else:
        class_names = style.as_names("classes", classes, answer.shape[1]) or [str(c) for c in range(answer.shape[1])]
        palette = _palette(len(class_names))
        winners = _draw_classes(ax, x, y, answer, palette, picture)
        index = _class_index(samples, len(class_names), classes)
        _draw_points(ax, samples, np.vstack([0.8 * palette, [[0.25, 0.25, 0.25]]])[index])  # darker than all regions
        _draw_legend(ax, class_names, palette, samples, winners)
    ax.set(xlim=limits[:2], ylim=limits[2:])
    style.axis_names(ax, *names)
    left_out = f": {len(samples.xy):,} of {samples.count:,} points" if len(samples.xy) < samples.count else ""
    style.panel_title(ax, ("Output" if answer.ndim == 1 else "Decision regions") + left_out)


def _answers(decide: Callable[[FloatArray], ArrayLike], grid: FloatArray) -> FloatArray:
    answer = np.asarray(decide(grid), dtype=np.float64)
    if answer.ndim not in (1, 2) or len(answer) != len(grid) or answer.size == 0:
        raise MeshError(f"decide must return {len(grid)} values or rows of probabilities, got shape {answer.shape}")
    if not np.isfinite(answer).any():
        raise MeshError("decide returned no finite number within the bounds")
    return np.hstack([1 - answer, answer]) if answer.ndim == 2 and answer.shape[1] == 1 else answer


@dataclass(frozen=True)
class _Samples:
    """Points to draw, at most 2,000."""

    xy: FloatArray
    labels: NDArray[Any] | None
    test: BoolArray
    count: int  # number of points before thinning

    @classmethod
    def checked(cls, points: ArrayLike | None, labels: ArrayLike | None, test_mask: ArrayLike | None) -> _Samples:
        xy = np.asarray(np.empty((0, 2)) if points is None else points, dtype=np.float64)
        if xy.ndim != 2 or xy.shape[1] != 2:
            raise MeshError(f"points must have shape (p, 2), got {xy.shape}")
        given = None if labels is None or points is None else np.asarray(labels)
        test = np.zeros(len(xy), np.bool_) if test_mask is None or points is None else np.asarray(test_mask)
        for name, array in (("labels", given), ("test_mask", test)):
            if array is not None and array.shape != (len(xy),):
                raise MeshError(f"{name} must have shape ({len(xy)},), one for each point, got {array.shape}")
        if test.dtype != np.bool_:
            raise MeshError(f"test_mask must be a mask, got dtype {test.dtype}")
        kept = np.linspace(0, len(xy) - 1, min(len(xy), 2000)).astype(np.int64)
        return cls(xy[kept], None if given is None else given[kept], test[kept], len(xy))


# -- classes -----------------------------------------------------------------------------------------------------


def _draw_classes(
    ax: Axes, x: FloatArray, y: FloatArray, answer: FloatArray, palette: FloatArray, picture: dict[str, Any]
) -> IntArray:
    """Draw regions and the boundaries between them; return the classes that have a region."""
    k, shape = answer.shape[1], (len(y), len(x))
    answer = np.nan_to_num(answer, nan=1 / k, posinf=1.0, neginf=0.0)  # NaN counts as equal probabilities
    winner = answer.argmax(axis=1)
    sure = np.clip((answer.max(axis=1) - 1 / k) / (1 - 1 / k), 0.0, 1.0)
    pixels = 1 - (0.12 + 0.5 * sure)[:, None] * (1 - palette[winner])
    ax.imshow(pixels.reshape(*shape, 3), **picture)
    # a boundary is between two classes, so the outlines of all classes but one show all boundaries
    winners = np.unique(winner)
    for c in winners[1:].tolist():
        ahead = answer[:, c] - np.delete(answer, c, axis=1).max(axis=1)
        ax.contour(x, y, ahead.reshape(shape), levels=[0.0], colors=style.INK, linewidths=0.9, alpha=0.8)
    return winners


def _palette(k: int) -> FloatArray:
    from matplotlib.colors import to_rgb

    return np.array([to_rgb(style.CLASSES[c % len(style.CLASSES)]) for c in range(k)])


def _class_index(samples: _Samples, k: int, classes: Sequence[object] | None) -> IntArray:
    """Return the class number of each point, -1 without a label or with an unknown label."""
    if samples.labels is None:
        return np.full(len(samples.xy), -1)
    by_number = classes is None or (samples.labels.dtype.kind in "iu" and all(isinstance(c, str) for c in classes))
    number = {value: c for c, value in enumerate(range(k) if by_number else classes or ())}
    return np.array([number.get(label, -1) for label in samples.labels.tolist()], dtype=np.int64)


def _draw_points(ax: Axes, samples: _Samples, colours: FloatArray) -> None:
    size = float(np.clip(6000 / max(len(samples.xy), 1), 8.0, 18.0))
    groups = (("points", ~samples.test, "o", "white", 1.0), ("test points", samples.test, "D", style.INK, 1.1))
    for name, chosen, marker, edge, scale in groups:
        if chosen.any():
            look: dict[str, Any] = {"c": colours[chosen], "marker": marker, "edgecolors": edge, "linewidths": 0.45}
            x, y = samples.xy[chosen].T
            ax.scatter(x, y, s=scale * size, gid=name, **look)


def _draw_legend(ax: Axes, names: list[str], palette: FloatArray, samples: _Samples, winners: IntArray) -> None:
    from matplotlib.lines import Line2D

    order = sorted(range(len(names)), key=lambda c: (c not in winners, c))[:10]  # visible classes first
    looks: list[Any] = [(names[c], "s", tuple(palette[c]), style.INK) for c in sorted(order)]
    if len(names) > len(order):
        looks.append((f"and {len(names) - len(order)} more", "", "white", "white"))
    if samples.test.any() and not samples.test.all():
        looks += [("train", "o", style.FAINT, "white"), ("test", "D", style.FAINT, style.INK)]
    handles = [Line2D([], [], ls="", marker=m, ms=6, color=fill, mec=edge, mew=0.4) for _, m, fill, edge in looks]
    options = style.legend_options(handletextpad=0.3, handlelength=1.0, labelspacing=0.35)
    legend = ax.legend(handles, ["x"] * len(handles), loc="upper left", bbox_to_anchor=(1.02, 1.0), **options)
    for text, (name, *_) in zip(legend.get_texts(), looks, strict=True):
        text.set_parse_math(False)  # math text would drop names with a leading _ and typeset those with a $
        text.set_text(name)


# -- values ------------------------------------------------------------------------------------------------------


def _draw_values(
    ax: Axes, x: FloatArray, y: FloatArray, answer: FloatArray, samples: _Samples, picture: dict[str, Any]
) -> None:
    values = np.ma.masked_invalid(answer.reshape(len(y), len(x)))
    image = ax.imshow(values, cmap="cividis", **picture)
    if values.min() < values.max():
        ax.contour(x, y, values, levels=6, colors="white", linestyles="-", linewidths=0.6, alpha=0.6)
    style.colour_bar(ax, image)
    colours = np.full((len(samples.xy), 4), 0.25)
    if samples.labels is not None:
        colours = np.asarray(image.to_rgba(np.asarray(samples.labels, dtype=np.float64)))
    _draw_points(ax, samples, colours[:, :3])
