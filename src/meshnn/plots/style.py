"""Shared parts of all plots: colours, font sizes, names, axes, lines and legends."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size

from meshnn.errors import MeshError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

POSITIVE = "#1f6fb2"
NEGATIVE = "#e07b00"
INK = "#2b2b2b"
FAINT = "#8a8a8a"

#: Ten colours that can be distinguished with the common forms of colour blindness (Okabe and Ito, three of Tol).
CLASSES = (
    "#1f6fb2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#c9b800", "#7f7f7f", "#882255", "#332288",
)  # fmt: skip

SMALL = 8.0  # size of names and numbers in points; other text has 9, titles of panels 10


def require_matplotlib() -> None:
    """Raise a `MeshError` with installation instructions if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MeshError("plots need matplotlib; pip install 'meshnn[plots]'") from error


@contextmanager
def clean_style() -> Iterator[None]:
    """Use matplotlib's defaults and fixed fonts instead of the user's settings, for reproducible figures.

    Characters that no installed font has are drawn as boxes, without a warning.
    """
    import matplotlib
    from matplotlib import font_manager

    # for characters that matplotlib's default font lacks
    fallbacks = (
        "Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback",
        "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "PingFang SC", "Hiragino Sans", "Arial Unicode MS",
        "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali", "Nirmala UI",
    )  # fmt: skip
    installed = {font.name for font in font_manager.fontManager.ttflist}
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support", category=UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "font.family": ["DejaVu Sans", *(name for name in fallbacks if name in installed)],
                "font.size": 9,
                "figure.constrained_layout.w_pad": 0.1,  # in inches, so that names do not touch the edge
                "figure.constrained_layout.h_pad": 0.1,
                "svg.hashsalt": "meshnn",
                "svg.fonttype": "path",  # text as outlines is independent of installed fonts
            }
        )
        yield


def shorten(name: object, width: int = 14) -> str:
    """Return a name on one line, shortened in the middle to the width; East Asian characters count twice.

    >>> from meshnn.plots.style import shorten
    >>> shorten("petal length in centimetres")
    'petal l…metres'
    """
    line = "".join(c if c.isprintable() else " " for c in str(name)).strip()
    if cell_len(line) <= width:
        return line
    head, tail = set_cell_size(line, width // 2), set_cell_size(line[::-1], (width - 1) // 2)[::-1]
    return f"{head.rstrip()}…{tail.lstrip()}"


def counted(number: int, what: str) -> str:
    """Return a number and a noun in singular or plural: 1 edge, 2 edges."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def as_names(what: str, names: Sequence[object] | None, count: int) -> list[str] | None:
    """Check the number of names and return shortened names, or None."""
    if names is None:
        return None
    if len(names) != count:
        raise MeshError(f"{what} must be {count} names, got {len(names)}")
    return [shorten(name) for name in names]


def diverging() -> Colormap:
    """Return the colour map of weights: orange for negative, light grey for zero, blue for positive, white for none."""
    from matplotlib.colors import LinearSegmentedColormap

    steps = ["#8a3f00", NEGATIVE, "#f2c58c", "#e9e9e9", "#9cc3e4", POSITIVE, "#0b3a66"]
    return LinearSegmentedColormap.from_list("meshnn", steps).with_extremes(bad="white")


def axes_size(ax: Axes) -> tuple[float, float]:
    """Return the approximate width and height of the axes in points; the final layout usually makes them larger."""
    box, whole = ax.get_position(original=True), ax.figure.bbox
    points = 72 / ax.figure.dpi * (1.0 if ax.figure.get_layout_engine() is None else 1.2)
    return float(box.width * whole.width * points), float(box.height * whole.height * points)


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """Return a figure of the given size in inches, with automatic layout."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", **options)


def page_title(figure: Figure, text: str) -> None:
    """Set the title of a whole figure."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=12, color=INK, parse_math=False)


def panel_title(ax: Axes, text: str, above: float = 6.0) -> None:
    """Set the title of a panel, `above` points above it; a $ does not start a formula."""
    ax.set_title(text, loc="left", pad=above, fontsize=10, color=INK, parse_math=False)


def quiet_axes(ax: Axes) -> None:
    """Draw thin grey axes on the left and at the bottom, with small labels."""
    ax.spines[:].set(color=FAINT, linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(colors=FAINT, labelcolor=INK, labelsize=SMALL, width=0.8, length=3)


def axis_names(ax: Axes, across: str, up: str) -> None:
    """Set the names of the axes; a $ does not start a formula."""
    ax.set_xlabel(across, fontsize=SMALL, color=INK, parse_math=False)
    ax.set_ylabel(up, fontsize=SMALL, color=INK, parse_math=False)


def colour_bar(ax: Axes, image: AxesImage, extend: str = "neither") -> None:
    """Draw a colour bar beside an image; `extend` marks values beyond its ends."""
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((1.03, 0.1, 0.035, 0.8)), extend=extend)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=FAINT, labelcolor=INK, labelsize=SMALL, width=0.8, length=3)


def empty_panel(ax: Axes, text: str) -> None:
    """Write the reason into an empty panel."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", fontsize=9, color=FAINT)


def legend_options(**more: Any) -> dict[str, Any]:
    """Return the common options of legends: no frame, small text."""
    return {"frameon": False, "fontsize": SMALL, "labelcolor": INK, "handlelength": 1.6, "borderaxespad": 0.0} | more


def legend_above(ax: Axes, handles: Sequence[Any] | None = None) -> None:
    """Draw a legend in one row between the axes and their title."""
    shown = ax.get_legend_handles_labels()[0] if handles is None else list(handles)
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.01), "ncols": len(shown), "columnspacing": 1.2}
    ax.legend(handles=shown, **legend_options(**place))


def draw_line(ax: Axes, x: NDArray[Any], y: NDArray[Any], dashes: str = "-", **look: Any) -> None:
    """Draw a line, or a dot for a single point, which would be invisible as a line."""
    ax.plot(x, y, dashes, marker="o" if np.isfinite(y).sum() == 1 else "", ms=4, **look)


def settle(figure: Figure) -> None:
    """Fix the layout of the figure, because positions would differ slightly between files."""
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
