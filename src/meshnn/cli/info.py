"""`meshnn info`: what is in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from meshnn.cli.output import print_json
from meshnn.memory import format_bytes

__all__ = ["info"]

#: Features whose importance is shown.
MOST_SHOWN = 8


def info(
    model: Annotated[Path, typer.Argument(help="A .mesh file.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a .mesh file holds: net, features, classes, how it was trained.

    [bold]Example[/bold]

      meshnn info iris.mesh
    """
    from meshnn import storage
    from meshnn.loading import from_tree

    tree = storage.read(model)
    thing = from_tree(model, tree, fitted=True)
    facts = _facts_of_forecaster(model, tree, thing) if hasattr(thing, "forecast") else _facts(model, tree, thing)
    if as_json:
        print_json(facts)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value is None or value == []:
            continue
        if name == "bytes":
            name, value = "size", format_bytes(value)
        table.add_row(name.replace("_", " "), Text(_shown(value)))
    Console().print(table)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _facts_of_forecaster(path: Path, header: dict[str, Any], thing: Any) -> dict[str, Any]:
    lines = thing.explain() if thing.n_samples_ else []
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "holds": header["kind"],
        "values": thing.n_samples_,
        "season": thing.season_,
        "features": [str(name) for name in thing.features_.names],
        "believed": {name: f"{max(near, far):.2f}" for name, near, far in lines if max(near, far) >= 0.01},
        "next": thing.forecast(1)[0] if thing.n_samples_ else None,
        "written_with": header.get("versions"),
    }


def _facts(path: Path, header: dict[str, Any], thing: Any) -> dict[str, Any]:
    mesh = getattr(thing, "mesh_", thing)
    if mesh is None:  # a stream that has not begun
        held = {"file": str(path), "bytes": path.stat().st_size, "holds": header["kind"]}
        return held | _facts_of_stream(thing) | {"written_with": header.get("versions")}
    t = mesh.topology
    dead = int(mesh.dead_edges().sum())
    facts: dict[str, Any] = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "holds": header["kind"],
        "inputs": t.n_inputs,
        "bias": t.bias,
        "hidden": t.n_hidden,
        "outputs": t.n_outputs,
        "edges": t.n_edges,
        "live_edges": t.n_edges - dead,
        "parameters": mesh.n_parameters,
        "ticks": mesh.ticks,
        "activations": sorted(set(mesh.activations)),
        "dtype": str(mesh.dtype),
    }
    if hasattr(thing, "learn_one"):
        facts |= _facts_of_stream(thing)
    elif thing is not mesh:
        encoder = getattr(thing, "encoder_", None)
        last = thing.history_[-1] if len(thing.history_) else None
        facts |= {
            "target": getattr(thing, "target_", None),
            "classes": [str(c) for c in getattr(thing, "classes_", [])],
            "columns": encoder.describe() if encoder is not None else None,
            "features": [str(n) for n in getattr(thing, "feature_names_in_", [])] or None,
            "importances": _importances(thing, encoder),
            "solver": thing.solver_,
            "solver_reason": thing.solver_reason_,
            "epochs": thing.n_iter_ or (last.epoch if last else 0),
            "minimised": thing.loss_,
            "loss": None if last is None else last.loss,
            "training_seconds": None if last is None else last.seconds,
            "training_notes": thing.history_.notes,
            "checkpoint": _checkpoint(header),
        }
    return facts | {"written_with": header.get("versions")}


def _facts_of_stream(thing: Any) -> dict[str, Any]:
    from meshnn.cli.stream_model import facts_of_stream  # loads more than other models need

    return facts_of_stream(thing)


def _importances(thing: Any, encoder: Any) -> dict[str, float] | None:
    """The features that move the outputs most."""
    shares = getattr(thing, "feature_importances_", None)
    if shares is None:
        return None
    named = getattr(thing, "feature_names_in_", None)
    if named is None and encoder is not None:
        named = encoder.feature_names
    names = [f"feature {k}" for k in range(len(shares))] if named is None else [str(name) for name in named]
    first = sorted(range(len(shares)), key=lambda k: -shares[k])[:MOST_SHOWN]
    return {names[k]: round(float(shares[k]), 3) for k in first}


def _checkpoint(header: dict[str, Any]) -> str | None:
    training = header.get("training")
    if not isinstance(training, dict) or not isinstance(training.get("state"), dict):
        return None
    return "of a finished run" if training["state"].get("finished") else "of an unfinished run: fit again to go on"
