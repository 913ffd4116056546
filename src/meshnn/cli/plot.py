"""`meshnn plot`: draw a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from meshnn.cli.options import AsJson, MeshFile, read_options
from meshnn.cli.output import check_output, print_json, refuse

What = Literal["all", "graph", "adjacency", "loss", "regions", "topology"]


def plot(
    model: MeshFile,
    out: Annotated[
        Path, Option("--out", "-o", help="File for the plot: .svg, .png or .pdf; with --what topology also .gif.")
    ],
    what: Annotated[
        What,
        Option(help="Panel to draw. all: every panel that applies to the model. topology: changes of the graph."),
    ] = "all",
    data: Annotated[
        Path | None, Option(help="Table whose rows are drawn over the decision regions, for models of two features.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a model: graph, adjacency matrix, loss and, with two features, decision regions.

    [bold]Examples[/bold]

      meshnn plot iris.mesh --out net.svg
      meshnn plot spirals.mesh --what regions --data spirals.csv --out regions.png
      meshnn plot pruned.mesh --what topology --out pruned.gif
    """
    from meshnn.cli.stream_state import StreamState
    from meshnn.loading import load_fitted
    from meshnn.plots import animate_lineage, check_figure_path, plot_lineage, plot_model, plot_stream, save_figure
    from meshnn.plots.save import save_frames

    animated = what == "topology" and out.suffix.lower() == ".gif"
    check_figure_path(out.with_suffix(".png") if animated else out)
    check_output("--out", out)
    thing = load_fitted(model)
    mesh = getattr(thing, "mesh_", thing)
    refuse({f"{model} has not been trained, so it has no network to draw; train it first": mesh is None})
    if animated:
        save_frames(animate_lineage(mesh.lineage_, model.stem), out)
    elif what == "topology":
        save_figure(plot_lineage(mesh.lineage_, model.stem), out)
    elif what == "loss" and getattr(thing, "table_", None) is not None:
        scores = StreamState.of(thing, model).scores
        save_figure(plot_stream(scores.curve(), kind=scores.kind, window=scores.window, title=model.stem), out)
    else:
        points, labels = (None, None) if data is None else _points(thing, data)
        save_figure(plot_model(thing, title=model.stem, what=what, points=points, labels=labels), out)
    if as_json:
        print_json({"model": str(model), "picture": str(out), "what": what})
    else:
        print(f"picture written to {out}", file=sys.stderr)


def _points(thing: Any, data: Path) -> tuple[Any, Any]:
    from meshnn.cli.models import ModelTables

    refuse({
        "--data applies to fitted models of two features, which have decision regions; leave it out":
        getattr(thing, "mesh_", thing).topology.n_inputs != 2,
        "--data: the columns of the model are not known, since `meshnn fit` did not make it; leave --data out":
        not hasattr(thing, "target_"),
    })  # fmt: skip
    X, y = ModelTables(thing, data, read_options(), shown=False).samples(thing.target_)
    return X, y.astype(str) if hasattr(thing, "classes_") else y
