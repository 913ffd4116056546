"""`meshnn info`: the contents of a .mesh file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from meshnn import storage
from meshnn.cli.options import AsJson, MeshFile
from meshnn.cli.output import print_json, printable, screen
from meshnn.loading import from_tree
from meshnn.memory import format_bytes


def info(model: MeshFile, as_json: AsJson = False) -> None:
    """Show the contents of a .mesh file: network, features, classes and training.

    [bold]Example[/bold]

      meshnn info iris.mesh
    """
    tree = storage.read(model)
    thing = from_tree(model, tree, fitted=True)
    facts = {"file": str(model), "bytes": model.stat().st_size, "holds": tree["kind"]}
    facts |= _forecaster(thing) if hasattr(thing, "forecast") else _net(thing) | _trained(thing, tree, model)
    facts["written_with"] = tree.get("versions")
    if as_json:
        print_json(facts)
        return
    facts = {"size" if name == "bytes" else name: value for name, value in facts.items()}
    facts["size"] = format_bytes(facts["size"])
    lines = {
        name.replace("_", " "): printable(_shown(value))
        for name, value in facts.items()
        if value is not None and value != []
    }
    if not sys.stdout.isatty():  # one line per fact, for grep
        for name, text in lines.items():
            print(f"{name:<17} {text}")
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in lines.items():
        table.add_row(name, Text(text))
    screen().print(table)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _forecaster(thing: Any) -> dict[str, Any]:
    lines = thing.explain() if thing.n_samples_ else []
    return {
        "values": thing.n_samples_, "season": thing.season_, "features": [str(name) for name in thing.features_.names],
        "expert_weights": {name: f"{max(near, far):.2f}" for name, near, far in lines if max(near, far) >= 0.01},
        "next": thing.forecast(1)[0] if thing.n_samples_ else None,
    }  # fmt: skip


def _net(thing: Any) -> dict[str, Any]:
    mesh = getattr(thing, "mesh_", thing)
    if mesh is None:  # a streaming model without a sample
        return {}
    t = mesh.topology
    return {
        "inputs": t.n_inputs, "bias": t.bias, "hidden": t.n_hidden, "outputs": t.n_outputs, "edges": t.n_edges,
        "live_edges": t.n_edges - int(mesh.dead_edges().sum()), "parameters": mesh.n_parameters, "ticks": mesh.ticks,
        "activations": sorted(set(mesh.activations)), "dtype": str(mesh.dtype),
    }  # fmt: skip


def _trained(thing: Any, tree: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the facts about a model besides its network: features, classes, training."""
    if hasattr(thing, "learn_one"):
        return _stream(thing, path)
    if not hasattr(thing, "mesh_"):
        return {}
    encoder = getattr(thing, "encoder_", None)
    last = thing.history_[-1] if len(thing.history_) else None
    return {
        "target": getattr(thing, "target_", None), "classes": [str(c) for c in getattr(thing, "classes_", [])],
        "columns": encoder.describe() if encoder is not None else None,
        "features": [str(n) for n in getattr(thing, "feature_names_in_", [])] or None,
        "importances": _importances(thing), "solver": thing.solver_, "solver_reason": thing.solver_reason_,
        "epochs": thing.n_iter_ or (last.epoch if last else 0), "minimised": thing.loss_,
        "loss": None if last is None else last.loss, "training_seconds": None if last is None else last.seconds,
        "training_notes": thing.history_.notes, "checkpoint": _checkpoint(tree.get("training")),
    }  # fmt: skip


def _stream(model: Any, path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "classes": [str(label) for label in getattr(model, "classes_", [])],
        "features": [str(name) for name in model.features_.names] or None,
        "learner": model.learner, "memory": model.memory, "samples_learned": model.n_samples_,
    }  # fmt: skip
    if model.table_ is None:
        return facts
    from meshnn.cli.stream_state import StreamState  # imports pyarrow

    state = StreamState.of(model, path)
    schema, scores = state.schema, state.scores
    return facts | {
        "target": schema.target, "ordered_by": schema.by, "dropped": schema.drop or None, "table": state.source,
        "rows": state.rows, "stream": "finished" if state.finished else "unfinished: meshnn stream ... --resume",
        "scores": {name: round(value, 6) for name, value in scores.summary().items()} if scores.rows else None,
    }  # fmt: skip


def _importances(thing: Any) -> dict[str, float] | None:
    """Return the eight features with the largest importances."""
    shares = getattr(thing, "feature_importances_", None)
    if shares is None:
        return None
    named = getattr(thing, "feature_names_in_", [f"feature {k}" for k in range(len(shares))])
    first = sorted(range(len(shares)), key=lambda k: -shares[k])[:8]
    return {str(named[k]): round(float(shares[k]), 3) for k in first}


def _checkpoint(training: Any) -> str | None:
    state = training.get("state") if isinstance(training, dict) else None
    if not isinstance(state, dict):
        return None
    return "of a finished run" if state.get("finished") else "of an unfinished run; run the same fit again to resume"
