"""`meshnn plot`: a model as a picture."""

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
    out: Annotated[Path, Option("--out", "-o", help="The picture to write: .svg, .png, .pdf, of topology also .gif.")],
    what: Annotated[What, Option(help="The panel to draw; by default all that apply.")] = "all",
    data: Annotated[Path | None, Option(help="The table whose rows are drawn over the decision regions.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a model: its graph, its adjacency matrix, its loss and, with two features, its decision regions.

    [bold]Examples[/bold]

      meshnn plot iris.mesh --out net.svg
      meshnn plot spirals.mesh --what regions --data spirals.csv --out regions.png
      meshnn plot pruned.mesh --what topology --out pruned.gif
    """
    from meshnn.cli.stream_state import StreamState
    from meshnn.loading import load_fitted
    from meshnn.plots import animate_lineage, check_figure_path, plot_lineage, plot_model, plot_stream, save_figure
    from meshnn.plots.save import save_frames

    film = what == "topology" and out.suffix.lower() == ".gif"
    check_figure_path(out.with_suffix(".png") if film else out)
    check_output("--out", out)
    thing = load_fitted(model)
    mesh = getattr(thing, "mesh_", thing)
    refuse({f"{model} has not been trained yet: there is no net to draw": mesh is None})
    if film:
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
        "--data: only a fitted model with two features has decision regions; leave it out":
        getattr(thing, "mesh_", thing).topology.n_inputs != 2,
        "--data: the model was not made by `meshnn fit`, so its columns are not known; leave it out":
        not hasattr(thing, "target_"),
    })  # fmt: skip
    X, y = ModelTables(thing, data, read_options(), shown=False).samples(thing.target_)
    return X, y.astype(str) if hasattr(thing, "classes_") else y
