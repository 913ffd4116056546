"""What `meshnn stream` shows: one live line (elsewhere than on a terminal a line now and then), and a report."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import typer

from meshnn.cli.output import counted, print_json, printable, say_notes, screen
from meshnn.errors import DataError, MeshError

__all__ = ["Live", "report"]


class Live:
    """A line with the progress and the scores; nothing if `quiet`.

    Parameters
    ----------
    name : str
        What is read.
    quiet : bool
    every : float
        Seconds between two lines where there is no terminal.
    """

    def __init__(self, name: str, quiet: bool, every: float = 5.0) -> None:
        from rich.progress import Progress, TextColumn, TimeRemainingColumn

        console = screen(stderr=True)
        hidden = quiet or not console.is_terminal or console.is_dumb_terminal
        columns = TimeRemainingColumn(), TextColumn("{task.description}", markup=False)
        self._bar = Progress(*columns, console=console, transient=True, disable=hidden, redirect_stdout=False)
        self._task = self._bar.add_task(name, total=None)
        self._bar.start()
        self._name, self._quiet, self._every = name, quiet, every if hidden else 0.1
        self._began = self._shown = time.monotonic()

    def update(self, rows: int, scores: Any, share: float | None) -> None:
        """Show the rows of this run and the share of the table that was read, if it is time to."""
        now = time.monotonic()
        if self._quiet or now - self._shown < self._every:
            return
        self._shown = now
        rate = f"{rows / max(now - self._began, 1e-6):,.0f}/s" if rows else "waiting for rows"
        read = [] if share is None else [f"{share:.0%}"]
        parts = [self._name, *read, f"{rows:,} rows", rate, *_score_lines(scores)[:1]]
        if self._bar.disable:
            print(printable("  ".join(parts)), file=sys.stderr, flush=True)
        else:
            total = None if share is None else 1.0
            self._bar.update(self._task, description="  ".join(parts), completed=share or 0.0, total=total)

    def close(self) -> None:
        """Take the line away."""
        self._bar.stop()


def report(run: Any, data: Path, picture: Path | None, seconds: float, as_json: bool) -> None:
    """Show scores, files and how to continue; exit with the code of an interruption."""
    code, name = run.codes[0] if run.codes else 0, run.source.name
    if run.source.skipped:
        say_notes([f"{name}: {counted(run.source.skipped, 'row')} with too few or too many values left out"])
    if run.model is None:
        if code:
            say_notes(["interrupted before the first row was learned: nothing is written"])
            raise typer.Exit(code)
        raise DataError(f"{name} has no rows below its header, expected at least one")
    if run.model.n_samples_ == 0 and not code:
        raise DataError(f"{name}: no row of {run.rows:,} has a value of {run.schema.target}: nothing to learn")
    if picture is not None:
        picture = _draw(run, picture, data) if run.scores.rows else None
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

    title = f"{'standard input' if str(data) == '-' else data.name}: {run.schema.target}, test then train"
    try:
        figure = plot_stream(run.scores.curve(), kind=run.schema.task, window=run.scores.window, title=title)
        save_figure(figure, picture)
    except (MeshError, OSError) as error:
        say_notes([f"no picture: {error}"])
        return None
    return picture


def _facts(run: Any, data: Path, picture: Path | None, seconds: float) -> dict[str, Any]:
    model, mesh, table = run.model, run.model.mesh_, run.model.table_
    return {
        "data": str(data),
        "target": run.schema.target,
        "task": run.schema.task,
        "rows": table["rows"],
        "rows_of_this_run": run.rows,
        "learned": model.n_samples_,
        "seconds": seconds,
        "rows_per_second": run.rows / seconds,
        "scored": run.scores.rows,
        "scores": run.scores.summary(),
        "window": min(run.scores.window, run.scores.rows),
        "window_scores": run.scores.summary(recent=True),
        "classes": [str(label) for label in model.classes_] if run.schema.task == "classify" else None,
        "features": [str(name) for name in model.features_.names],
        "hidden": 0 if mesh is None else mesh.topology.n_hidden,
        "parameters": 0 if mesh is None else mesh.n_parameters,
        "learner": model.learner,
        "memory": model.memory,
        "finished": run.finished,
        "model": str(run.out),
        "picture": None if picture is None else str(picture),
        "predictions": None if table["predictions"] is None else table["predictions"]["path"],
    }


def _show(facts: dict[str, Any], run: Any) -> None:
    from rich.text import Text

    lines = [f"{counted(run.rows, 'row')} in {facts['seconds']:.1f} s ({facts['rows_per_second']:,.0f}/s)"]
    if facts["rows"] != run.rows:
        lines[0] += f", {facts['rows']:,} with those before"
    lines[0] += f"; {facts['learned']:,} learned"
    if missing := facts["rows"] - facts["learned"]:
        lines[0] += f", {missing:,} without a target"
    lines += _score_lines(run.scores)
    columns = [name for name in run.schema.features if name in run.schema.columns]
    sizes = [f"{counted(len(columns), 'column')} as {counted(len(facts['features']), 'feature')}"]
    sizes += [] if facts["classes"] is None else [counted(len(facts["classes"]), "class")]
    sizes += [counted(facts["hidden"], "hidden neuron"), counted(facts["parameters"], "parameter"), facts["learner"]]
    lines.append(", ".join(sizes))
    files = {what: facts[what] for what in ("model", "picture", "predictions") if facts[what] is not None}
    lines.append("; ".join(f"{what} written to {place}" for what, place in files.items()))
    console = screen()
    for k, line in enumerate(lines):
        console.print(Text(line, style="bold" if facts["scored"] and k == 1 else ""), soft_wrap=True)


def _score_lines(scores: Any) -> list[str]:
    """Return each score, of all rows and of the last ones, beside those of predictions without a model."""
    if scores is None or scores.rows == 0:
        return []
    whole, recent, window = scores.summary(), scores.summary(recent=True), min(scores.window, scores.rows)
    rows = [("MAE", ".4g", {"running mean": "MAE of the mean", "last value": "MAE of the last"}),
            ("RMSE", ".4g", {"running mean": "RMSE of the mean", "last value": "RMSE of the last"}),
            ("R2", ".4f", {})]  # fmt: skip
    if scores.kind == "classify":
        rows = [("accuracy", ".4f", {"no change": "no change", "majority": "majority"}),
                ("log loss", ".4f", {"class frequencies": "class frequencies"})]  # fmt: skip
    lines = []
    for name, form, baselines in rows:
        score = f"{'R²' if name == 'R2' else name} {whole[name]:{form}} (last {window:,} rows {recent[name]:{form}})"
        others = ", ".join(f"{called} {whole[key]:{form}}" for called, key in baselines.items())
        lines.append(f"{score}; {others}" if others else score)
    return lines
