"""`meshnn plot`: a model as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from meshnn.cli.output import check_output, print_json, say_notes
from meshnn.errors import DataError, FileError, MeshError

__all__ = ["plot"]


What = Literal["all", "graph", "adjacency", "loss", "regions", "topology"]


def plot(
    model: Annotated[Path, typer.Argument(help="A .mesh file.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The picture: .svg, .png or .pdf; of topology also .gif.", show_default=False),
    ],
    what: Annotated[What, typer.Option("--what", help="Which panel; all that apply by default.")] = "all",
    data: Annotated[
        Path | None, typer.Option("--data", help="A table whose rows are drawn over the decision regions.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Draw a model: its graph, its adjacency matrix, its loss and, with two features, its decision regions.

    [bold]Examples[/bold]

      meshnn plot iris.mesh --out net.svg

      meshnn plot spirals.mesh --what regions --data spirals.csv --out regions.png

      meshnn plot pruned.mesh --what topology --out pruned.gif
    """
    from meshnn.loading import load_fitted
    from meshnn.plots import animate_lineage, check_figure_path, plot_lineage, plot_model, save_figure
    from meshnn.plots.animation import save_frames

    film = what == "topology" and out.suffix.lower() == ".gif"
    check_figure_path(out.with_suffix(".png") if film else out)
    check_output("--out", out)
    thing = load_fitted(model)
    mesh = getattr(thing, "mesh_", thing)
    if mesh is None:
        raise MeshError(f"{model} has not learned anything yet, so there is no net to draw")
    streams = hasattr(thing, "learn_one")
    fitted = thing is not mesh and not streams
    # of a step there are no regions
    two = fitted and mesh.topology.n_inputs == 2 and not hasattr(thing, "reading_")
    if data is not None and what != "topology" and not two:
        raise MeshError("--data: only a fitted model with two features has decision regions; leave it out")
    if film:
        save_frames(animate_lineage(mesh.lineage_, model.stem), out)
    elif streams and what == "loss" and thing.table_ is not None:
        save_figure(_scores_of(thing, model.stem), out)
    elif what == "topology":
        save_figure(plot_lineage(mesh.lineage_, model.stem), out)
    else:
        names = _feature_names(thing) if fitted else list(thing.features_.names) if streams else None
        figure = plot_model(
            topology=mesh.topology,
            weights=mesh.weights,
            ticks=mesh.ticks,
            dead=mesh.dead_edges(),
            history=thing.history_.to_dict() if fitted and len(thing.history_) else None,
            chosen=thing.best_restart_ if fitted else None,
            regions=_regions(thing, names, data) if two else None,
            title=model.stem,
            feature_names=names,
            output_names=_output_names(thing) if fitted else None,
            what=what,
        )
        save_figure(figure, out)
    if as_json:
        print_json({"model": str(model), "picture": str(out), "what": what})
    else:
        print(f"picture written to {out}", file=sys.stderr)


def _scores_of(thing: Any, title: str) -> Any:
    """What a stream has instead of a loss by epoch."""
    from meshnn.online.scores import scores_from
    from meshnn.plots import plot_stream

    try:
        scores = scores_from(thing.table_["scores"])
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"the model does not hold scores that make sense ({error})") from None
    return plot_stream(scores.curve(), kind=scores.kind, window=scores.window, title=title)


def _feature_names(thing: Any) -> list[str] | None:
    encoder = getattr(thing, "encoder_", None)
    if encoder is not None:
        return list(encoder.feature_names)
    return [str(name) for name in thing.feature_names_in_] if hasattr(thing, "feature_names_in_") else None


def _output_names(thing: Any) -> list[str] | None:
    if hasattr(thing, "classes_"):
        return [str(name) for name in thing.classes_]
    return [thing.target_] if hasattr(thing, "target_") else None


def _regions(thing: Any, names: list[str] | None, data: Path | None) -> Any:
    from meshnn.plots import Regions

    points, labels = (None, None) if data is None else _points(thing, data)
    middle, spread = thing.preprocessing_.scaling.x_mean, thing.preprocessing_.scaling.x_scale
    low, high = middle - 2.2 * spread, middle + 2.2 * spread
    if points is not None:
        margin = 0.05 * (points.max(axis=0) - points.min(axis=0))
        low, high = np.minimum(low, points.min(axis=0) - margin), np.maximum(high, points.max(axis=0) + margin)
    classes = [str(name) for name in thing.classes_] if hasattr(thing, "classes_") else None
    return Regions(
        decide=thing.predict_proba if classes is not None else thing.predict,
        bounds=(low[0], high[0], low[1], high[1]),
        classes=classes,
        feature_names=names,
        points=points,
        labels=labels,
    )


def _points(thing: Any, data: Path) -> tuple[Any, Any]:
    from meshnn.tables.reader import read_table
    from meshnn.tables.target import target_column

    if not hasattr(thing, "target_"):
        raise MeshError("--data: the model was not made by `meshnn fit`, so its columns are not known; leave it out")
    loaded = read_table(data, text=thing.encoder_.text_columns)
    if thing.target_ not in loaded.table.column_names:
        raise DataError(f"--data: {data.name} has no column {thing.target_!r} to colour the points by")
    classes = hasattr(thing, "classes_")
    goal = target_column(loaded.table, thing.target_, "classify" if classes else "regress")
    encoded = thing.encoder_.encode(goal.table)
    say_notes([*loaded.notes, *goal.notes, *encoded.notes])
    return encoded.X, goal.values.astype(str) if classes else goal.values
