"""Figures of the gallery: those of pyplot, and those of `meshnn.plots` that are not registered in pyplot."""

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

_seen: set[int] = set()
_kept: list[Figure] = []  # keep references, so that ids are not reused


def drawn(found: dict[str, Any]) -> list[Figure]:
    """Return all figures of a run: those of pyplot, then those that are the value of a name."""
    from matplotlib import pyplot

    shown = [pyplot.figure(number) for number in pyplot.get_fignums()]
    named = [value for value in found.values() if isinstance(value, Figure)]
    return [*shown, *(figure for figure in named if figure not in shown)]


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures of a block; return the lines that show them."""
    from matplotlib import pyplot

    paths = []
    for figure in drawn(block_vars["example_globals"]):
        if id(figure) in _seen:
            continue
        _seen.add(id(figure))
        _kept.append(figure)
        path = next(block_vars["image_path_iterator"])
        figure.savefig(path, dpi=120, facecolor="white")
        paths.append(path)
    pyplot.close("all")
    return figure_rst(paths, gallery_conf["src_dir"])


def _get_sg_image_scraper() -> Any:
    return scrape
