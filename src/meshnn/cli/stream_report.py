"""What `meshnn stream` tells at the end of a run, however it ended."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from meshnn.cli.output import counted, print_json, say_notes
from meshnn.errors import DataError, MeshError

__all__ = ["called", "report"]


def called(data: Path) -> str:
    """The table as lines name it."""
    return "standard input" if str(data) == "-" else data.name


def report(run: Any, data: Path, picture: Path | None, seconds: float, as_json: bool) -> None:
    """Scores, files and how to go on; the exit code of an interruption."""
    code = run.stopping.code
    if run.source.skipped:
        say_notes([f"{run.source.name}: {counted(run.source.skipped, 'row')} with too few or too many values left out"])
    if run.model is None:
        if code:
            say_notes(["interrupted before the first row was learned: nothing is written"])
            raise typer.Exit(code)
        raise DataError(f"{run.source.name} has no rows below its header, expected at least one")
    if run.model.n_samples_ == 0 and not code:
        raise DataError(
            f"{run.source.name}: no row of {run.rows:,} has a value of {run.recipe.target}: nothing to learn"
        )
    if picture is not None and run.scores.rows:
        picture = _draw(run, picture, data)
    elif picture is not None:
        picture = None
    facts = _facts(run, data, picture, seconds)
    if as_json:
        print_json(facts)
    else:
        _show(facts, run)
    if code:
        again = f"meshnn stream {shlex.quote(str(data))} --resume {shlex.quote(str(run.out))}"
        how = "" if str(data) != "-" else " (fed from the beginning again; with --new-rows, from the next row on)"
        say_notes([f"interrupted after row {facts['rows']:,}; go on at the next one: {again}{how}"])
    if run.failure is not None:
        raise MeshError(f"{run.failure}; the model was written to {run.out} instead")
    if code:
        raise typer.Exit(code)


def _draw(run: Any, picture: Path, data: Path) -> Path | None:
    from meshnn.plots import plot_stream, save_figure

    try:
        title = f"{called(data)}: {run.recipe.target}, test then train"
        save_figure(
            plot_stream(run.scores.curve(), kind=run.recipe.task, window=run.scores.window, title=title), picture
        )
        return picture
    except (MeshError, OSError) as error:
        say_notes([f"no picture: {error}"])
        return None


def _facts(run: Any, data: Path, picture: Path | None, seconds: float) -> dict[str, Any]:
    model, recipe, table = run.model, run.recipe, run.model.table_
    mesh = model.mesh_
    kept = table["predictions"]
    return {
        "data": str(data),
        "target": recipe.target,
        "task": recipe.task,
        "rows": table["rows"],
        "rows_of_this_run": run.rows,
        "learned": model.n_samples_,
        "seconds": seconds,
        "rows_per_second": run.rows / seconds,
        "scored": run.scores.rows,
        "scores": run.scores.summary(),
        "window": min(run.scores.window, run.scores.rows),
        "window_scores": run.scores.summary(recent=True),
        "classes": [str(label) for label in model.classes_] if recipe.task == "classify" else None,
        "features": [str(name) for name in model.features_.names],
        "hidden": 0 if mesh is None else mesh.topology.n_hidden,
        "parameters": 0 if mesh is None else mesh.n_parameters,
        "learner": model.learner,
        "memory": model.memory,
        "finished": run.finished,
        "model": str(run.out),
        "picture": None if picture is None else str(picture),
        "predictions": None if kept is None else kept["path"],
    }


def _show(facts: dict[str, Any], run: Any) -> None:
    console = Console()

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

    said = (
        f"{counted(facts['rows_of_this_run'], 'row')} in {facts['seconds']:.1f} s ({facts['rows_per_second']:,.0f}/s)"
    )
    if facts["rows"] != facts["rows_of_this_run"]:
        said += f", {facts['rows']:,} with those before"
    missing = facts["rows"] - facts["learned"]
    line(f"{said}; {facts['learned']:,} learned{f', {missing:,} without a target' if missing else ''}")
    if facts["scored"]:
        _show_scores(line, facts)
    count = (
        "" if facts["classes"] is None else f", {counted(len(facts['classes']), 'class').replace('classs', 'classes')}"
    )
    columns = [name for name in run.recipe.features if name in run.recipe.columns]
    line(
        f"{counted(len(columns), 'column')} as {counted(len(facts['features']), 'feature')}{count}, "
        f"{counted(facts['hidden'], 'hidden neuron')}, {counted(facts['parameters'], 'parameter')}, {facts['learner']}"
    )
    places = {"model": facts["model"], "picture": facts["picture"], "predictions": facts["predictions"]}
    line("; ".join(f"{what} written to {place}" for what, place in places.items() if place is not None))


def _show_scores(line: Any, facts: dict[str, Any]) -> None:
    whole, recent, last = facts["scores"], facts["window_scores"], f"last {facts['window']:,} rows"
    if facts["task"] == "classify":
        line(
            f"accuracy {whole['accuracy']:.4f} ({last} {recent['accuracy']:.4f}); no change {whole['no change']:.4f}, "
            f"majority {whole['majority']:.4f}",
            "bold",
        )
        line(
            f"log loss {whole['log loss']:.4f} ({last} {recent['log loss']:.4f}); class frequencies "
            f"{whole['class frequencies']:.4f}"
        )
        return
    for name, style in (("MAE", "bold"), ("RMSE", "")):
        others = f"running mean {whole[f'{name} of the mean']:.4g}, last value {whole[f'{name} of the last']:.4g}"
        line(f"{name} {whole[name]:.4g} ({last} {recent[name]:.4g}); {others}", style)
    line(f"R² {whole['R2']:.4f} ({last} {recent['R2']:.4f})")
