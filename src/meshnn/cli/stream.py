"""`meshnn stream`: a model that learns from the rows of a table one by one, and is tested on each before."""

from __future__ import annotations

import shlex
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Exit, Option

from meshnn import storage
from meshnn.cli.options import AsJson, Drop, ModelOut, Picture, TaskOption, column_list, read_options, with_read_options
from meshnn.cli.output import check_output, counted, print_json, print_lines, printable, refuse, say_notes
from meshnn.cli.stream_run import Run, save_interval, score_lines
from meshnn.cli.stream_state import StreamState
from meshnn.errors import DataError, MeshError
from meshnn.files import Lock
from meshnn.plots.save import check_figure_path
from meshnn.progress import progress
from meshnn.tables.names import check_names
from meshnn.tables.reader import STANDARD_INPUT, open_table
from meshnn.tables.streams import StreamSchema

Memory = Literal["none", "carry"]
Learner = Literal["ekf", "adam", "sgd"]
Names = Annotated[list[str] | None, Option(help="Columns of numbers that are names, as zip,id; may be repeated.")]


@with_read_options
def stream(
    data: Annotated[
        Path,
        Argument(
            help="A table in the order of time: .csv, .tsv (also .gz), .parquet or a folder of such, by name; "
            "- is standard input (CSV), row by row as it comes."
        ),
    ],
    target: Annotated[str | None, Option("--target", "-y", help="The column to predict.")] = None,
    by: Annotated[str | None, Option(help="The column that orders the rows, numbers or times.")] = None,
    task: TaskOption = "auto",
    drop: Drop = None,
    text: Names = None,
    columns: Annotated[str | None, Option(help="Names of the columns, as a,b,c, of text without a header.")] = None,
    max_categories: Annotated[int | None, Option(min=0, max=100_000, help="Levels per column; 50 by default.")] = None,
    hidden: Annotated[int | None, Option("--hidden", "-n", min=0, help="Hidden neurons; 16 by default.")] = None,
    memory: Annotated[Memory | None, Option(help="State of the net: carry keeps it from row to row.")] = None,
    learner: Annotated[Learner | None, Option(help="Learner: ekf by default; adam and sgd are cheaper.")] = None,
    random_state: Annotated[
        int | None, Option("--random-state", "--seed", min=0, max=2**32 - 1, help="Seed of the weights; 0 by default.")
    ] = None,
    out: ModelOut = None,
    predictions: Annotated[Path | None, Option(help="A .csv file with the prediction of each row.")] = None,
    picture: Picture = None,
    no_picture: Annotated[bool, Option("--no-picture", help="Draw no picture of the scores.")] = False,
    every: Annotated[str, Option(help="Rows, as 5000, or time, as 30s or 5m, between two saves.")] = "10s",
    window: Annotated[int | None, Option(min=2, help="Rows of the recent scores; 1000 by default.")] = None,
    skip_broken: Annotated[bool, Option("--skip-broken", help="Leave out rows with too few or many values.")] = False,
    resume: Annotated[Path | None, Option(help="A model of this command that continues at the next row.")] = None,
    new_rows: Annotated[bool, Option("--new-rows", help="With --resume: the table begins with the next row.")] = False,
    read: Any = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Learn from a table row by row, in constant memory; every row is predicted before it is learned.

    Numbers are features, texts get one per value ("colour=red"), empty cells are missing; features and classes may
    turn up at any time. A row without a target is only predicted. Ctrl-C and SIGTERM save the model; --resume goes on.

    [bold]Examples[/bold]

      meshnn stream power.csv --target load --by time
      tail -n +1 -f log.csv | meshnn stream - --target failed --drop id,host --out log.mesh
      meshnn stream power.csv --resume power.mesh
      meshnn stream tuesday.csv --resume monday.mesh --new-rows --out tuesday.mesh
    """
    refuse({
        "--picture and --no-picture: leave one of them out": picture and no_picture,
        "--new-rows goes with --resume model.mesh": new_rows and resume is None,
        "--target: name the column to predict": resume is None and target is None,
    })  # fmt: skip
    often = save_interval(every)
    net = {"hidden": hidden, "memory": memory, "learner": learner, "random_state": random_state}
    asked = net | {"target": target, "by": by, "task": None if task == "auto" else task, "drop": drop, "text": text,
                   "max_categories": max_categories, "window": window}  # fmt: skip
    model, state = (None, None) if resume is None else _resumed(resume, asked)
    if state is not None and read == read_options():
        read = state.read
    if out is None:
        named = "stream" if str(data) == "-" else data.name.split(".")[0] or "stream"
        out = resume or Path(f"{named}.mesh")
    check_output("--out", out, ".mesh", {"the table": data})
    if predictions is not None:
        check_output("--predictions", predictions, ".csv", {"the table": data, "the model": out})
    if not no_picture:
        picture = out.with_suffix(".png") if picture is None else check_figure_path(picture)
        check_output("--picture", picture)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if state is not None and new_rows and names is None and str(data) == "-":
        names = list(state.schema.columns)  # lines that follow others have no header; if there is one, it is noticed
    chosen = {"hidden": 16, "random_state": 0} | {name: value for name, value in net.items() if value is not None}
    with ExitStack() as stack:
        stack.callback(Lock(out).release)
        if state is None and out.exists():
            _check_finished(out)
        as_text = [part for each in text or () for part in (each, *each.split(","))]
        source = stack.enter_context(open_table(data, read, names, skip_broken, as_text))
        say_notes(source.notes)
        if state is None:
            state = StreamState(_schema(source, asked), source.name, read)
        _check_columns(source, state.schema)
        state.source, state.read = source.name, read
        if model is None or new_rows:
            state.schema.columns = list(dict.fromkeys([*state.schema.columns, *source.names]))
            state.base = state.rows
        elif state.position is not None:
            source.go_to(state.position)
        began = time.perf_counter()
        with progress(printable(Path(source.name).name), quiet=quiet or as_json) as tell:
            run = Run(source, state, model, chosen, task, window or 1000, out, often, predictions, tell)
            stack.enter_context(closing(run)).go()
        _report(run, data, picture, time.perf_counter() - began, as_json)


def _resumed(path: Path, asked: dict[str, Any]) -> tuple[Any, StreamState]:
    """Return a saved model and its state; refuse options that contradict them."""
    from meshnn.loading import load_fitted

    model = load_fitted(path)
    state = StreamState.of(model, path)
    schema = state.schema
    begun = {"target": schema.target, "by": schema.by, "task": schema.task, "drop": sorted(schema.drop),
             "text": sorted(schema.text), "max_categories": schema.most, "window": state.scores.window}  # fmt: skip
    for name, wanted in asked.items():
        there = begun[name] if name in begun else getattr(model, name)
        if isinstance(wanted, list):
            wanted = sorted(column_list(wanted, schema.columns)) or None
        if wanted is not None and wanted != there:
            had = ", ".join(there) if isinstance(there, list) else there
            option = f"--{name.replace('_', '-')}"
            raise MeshError(f"{option}: the model that goes on was begun with {had or 'none'}; leave the option out")
    return model, state


def _schema(source: Any, asked: dict[str, Any]) -> StreamSchema:
    drop, text = (column_list(asked[name], source.names) for name in ("drop", "text"))
    drop += [name for name in source.index if name not in (*drop, asked["target"], asked["by"])]  # of pandas
    most = 50 if asked["max_categories"] is None else asked["max_categories"]
    return StreamSchema(asked["target"], asked["by"], drop, text, most=most)


def _check_finished(out: Path) -> None:
    """Refuse to overwrite a stream that is unfinished or cannot be read again, or the file of another command."""
    try:
        table = storage.read(out).get("table")
    except MeshError:
        table = None
    if not isinstance(table, dict):
        raise MeshError(f"--out: {out} is there already and no stream; name another file with --out, or delete it")
    finished = table.get("finished")
    if table.get("source") == STANDARD_INPUT or not finished:
        how = f"--resume {shlex.quote(str(out))}{' --new-rows' if finished else ''}"
        what = f"--out: {out} holds a stream of {table.get('rows', 0)} rows, which would be lost"
        raise MeshError(f"{what}; go on with {how}, name another file with --out, or delete it")


def _check_columns(source: Any, schema: StreamSchema) -> None:
    refuse({
        f"--drop: {schema.target} is the target; choose one of the two": schema.target in schema.drop,
        f"--by: {schema.by} is the target; name the column that orders the rows": schema.by == schema.target,
    })  # fmt: skip
    used = [name for name in (schema.target, schema.by, *schema.drop, *schema.text) if name is not None]
    check_names(source.names, used, f"{source.name}: ")
    if set(source.names) <= {schema.target, schema.by, *schema.drop}:
        raise DataError(f"{source.name}: no column is left to learn from; drop fewer")


def _report(run: Run, data: Path, picture: Path | None, seconds: float, as_json: bool) -> None:
    """Show scores, files and how to continue; exit with the code of an interruption."""
    code, name, state, model = run.codes[0] if run.codes else 0, run.source.name, run.state, run.model
    if run.source.skipped:
        say_notes([f"{name}: {counted(run.source.skipped, 'row')} with too few or too many values left out"])
    if model is None:
        if code:
            say_notes(["interrupted before the first row was learned: nothing is written"])
            raise Exit(code)
        raise DataError(f"{name} has no rows below its header, expected at least one")
    target, task = state.schema.target, state.schema.task
    if model.n_samples_ == 0 and not code:
        raise DataError(f"{name}: no row of {run.rows:,} has a value of {target}: nothing to learn")
    if picture is not None:
        picture = _draw(run, picture, data) if state.scores.rows else None
    mesh, scores = model.mesh_, state.scores
    facts = {
        "data": str(data), "target": target, "task": task, "rows": state.rows, "rows_of_this_run": run.rows,
        "learned": model.n_samples_, "seconds": seconds, "rows_per_second": run.rows / seconds, "scored": scores.rows,
        "scores": scores.summary(), "window": min(scores.window, scores.rows),
        "window_scores": scores.summary(recent=True),
        "classes": [str(label) for label in model.classes_] if task == "classify" else None,
        "features": [str(feature) for feature in model.features_.names],
        "hidden": 0 if mesh is None else mesh.topology.n_hidden, "parameters": 0 if mesh is None else mesh.n_parameters,
        "learner": model.learner, "memory": model.memory, "finished": state.finished, "model": str(run.out),
        "picture": None if picture is None else str(picture), "predictions": state.predictions.get("path"),
    }  # fmt: skip
    if as_json:
        print_json(facts)
    else:
        _show(facts, scores)
    if code:
        again = f"meshnn stream {shlex.quote(str(data))} --resume {shlex.quote(str(run.out))}"
        how = "" if str(data) != "-" else " (fed from the beginning again; with --new-rows, from the next row on)"
        say_notes([f"interrupted after row {state.rows:,}; go on at the next one: {again}{how}"])
        raise Exit(code)


def _draw(run: Run, picture: Path, data: Path) -> Path | None:
    from meshnn.plots import plot_stream, save_figure

    scores = run.state.scores
    title = f"{STANDARD_INPUT if str(data) == '-' else data.name}: {run.state.schema.target}, test then train"
    try:
        figure = plot_stream(scores.curve(), kind=scores.kind, window=scores.window, title=title)
        save_figure(figure, picture)
    except (MeshError, OSError) as error:
        say_notes([f"no picture: {error}"])
        return None
    return picture


def _show(facts: dict[str, Any], scores: Any) -> None:
    first = (
        f"{counted(facts['rows_of_this_run'], 'row')} in {facts['seconds']:.1f} s ({facts['rows_per_second']:,.0f}/s)"
    )
    first += f", {facts['rows']:,} with those before" if facts["rows"] != facts["rows_of_this_run"] else ""
    first += f"; {facts['learned']:,} learned"
    missing = facts["rows"] - facts["learned"]
    first += f", {missing:,} without a target" if missing else ""
    sizes = [counted(len(facts["features"]), "feature")]
    sizes += [] if facts["classes"] is None else [counted(len(facts["classes"]), "class")]
    sizes += [counted(facts["hidden"], "hidden neuron"), counted(facts["parameters"], "parameter"), facts["learner"]]
    files = (what for what in ("model", "picture", "predictions") if facts[what])
    written = "; ".join(f"{what} written to {facts[what]}" for what in files)
    print_lines(first, *score_lines(scores), ", ".join(sizes), written, bold=1 if facts["scored"] else -1)
