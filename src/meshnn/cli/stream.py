"""`meshnn stream`: train a model online, row by row, and score it test-then-train."""

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
Names = Annotated[
    list[str] | None, Option(help="Columns of numbers to treat as categories, for example zip,code. May be repeated.")
]


@with_read_options
def stream(
    data: Annotated[
        Path,
        Argument(
            help="Table in the order of time: .csv, .tsv (also .gz), .parquet, a folder of Parquet files (in order of "
            "their names), or - for CSV from standard input, whose rows are learned as they arrive."
        ),
    ],
    target: Annotated[
        str | None, Option("--target", "-y", help="Column to predict. Required without --resume.")
    ] = None,
    by: Annotated[
        str | None, Option(help="Column of numbers or times by which the rows are sorted: checked, and not a feature.")
    ] = None,
    task: TaskOption = "auto",
    drop: Drop = None,
    text: Names = None,
    columns: Annotated[
        str | None, Option(help="Column names of a text file without a header, for example a,b,c.")
    ] = None,
    max_categories: Annotated[
        int | None,
        Option(
            min=0,
            max=100_000,
            help="Maximum number of features per text column. Default: 50; later levels are ignored.",
        ),
    ] = None,
    hidden: Annotated[
        int | None,
        Option(
            "--hidden",
            "-n",
            min=0,
            help="Number of hidden neurons. Default: 16; 0: a linear model. The time of ekf per row grows with the "
            "square of the number of parameters.",
        ),
    ] = None,
    memory: Annotated[
        Memory | None,
        Option(help="carry keeps the state of the network between rows that depend on earlier ones. Default: none."),
    ] = None,
    learner: Annotated[
        Learner | None,
        Option(
            help="Online learner: ekf (default, an extended Kalman filter); adam and sgd process more rows per second."
        ),
    ] = None,
    random_state: Annotated[
        int | None,
        Option("--random-state", "--seed", min=0, max=2**32 - 1, help="Seed of the initial weights. Default: 0."),
    ] = None,
    out: ModelOut = None,
    predictions: Annotated[Path | None, Option(help="File (.csv) for the predictions of all rows.")] = None,
    picture: Picture = None,
    no_picture: Annotated[
        bool, Option("--no-picture", help="Do not plot the scores. Default: a plot next to the model.")
    ] = False,
    every: Annotated[
        str, Option(help="Interval between saves of the model: a time such as 30s, 5m or 1h, or a number of rows.")
    ] = "10s",
    window: Annotated[
        int | None, Option(min=2, help="Number of latest rows for the recent scores. Default: 1000.")
    ] = None,
    skip_broken: Annotated[
        bool, Option("--skip-broken", help="Skip rows with too few or too many values instead of stopping at them.")
    ] = False,
    resume: Annotated[
        Path | None,
        Option(help="Model of this command to continue: the same table is resumed after the last row learned."),
    ] = None,
    new_rows: Annotated[
        bool,
        Option("--new-rows", help="With --resume: the table contains new rows only, such as the log of the next day."),
    ] = False,
    read: Any = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Do not show the progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model online, row by row, in constant memory.

    Each row is first predicted, then learned (test-then-train). Numbers are
    features, texts are one-hot encoded ("colour=red") and empty cells are missing
    values. New features and classes may appear at any row. A row without a target
    is only predicted. Ctrl-C and SIGTERM save the model; --resume continues.

    [bold]Examples[/bold]

      meshnn stream power.csv --target load --by time
      tail -n +1 -f log.csv | meshnn stream - --target failed --drop id,host --out log.mesh
      meshnn stream power.csv --resume power.mesh
      meshnn stream tuesday.csv --resume monday.mesh --new-rows --out tuesday.mesh
    """
    refuse({
        "--picture and --no-picture exclude each other; leave one of them out": picture and no_picture,
        "--new-rows needs --resume model.mesh": new_rows and resume is None,
        "--target is missing; pass the column to predict": resume is None and target is None,
    })  # fmt: skip
    interval = save_interval(every)
    net = {"hidden": hidden, "memory": memory, "learner": learner, "random_state": random_state}
    options = net | {"target": target, "by": by, "task": None if task == "auto" else task, "drop": drop, "text": text,
                     "max_categories": max_categories, "window": window}  # fmt: skip
    model, state = (None, None) if resume is None else _resumed(resume, options)
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
        names = list(state.schema.columns)  # piped lines have no header; the reader detects one all the same
    chosen = {"hidden": 16, "random_state": 0} | {name: value for name, value in net.items() if value is not None}
    with ExitStack() as stack:
        stack.callback(Lock(out).release)
        if state is None and out.exists():
            _check_finished(out)
        as_text = [part for each in text or () for part in (each, *each.split(","))]
        source = stack.enter_context(open_table(data, read, names, skip_broken, as_text))
        say_notes(source.notes)
        if state is None:
            state = StreamState(_schema(source, options), source.name, read)
        _check_columns(source, state.schema)
        state.source, state.read = source.name, read
        if model is None or new_rows:
            state.schema.columns = list(dict.fromkeys([*state.schema.columns, *source.names]))
            state.base = state.rows
        elif state.position is not None:
            source.go_to(state.position)
        began = time.perf_counter()
        with progress(printable(Path(source.name).name), quiet=quiet or as_json) as tell:
            run = Run(source, state, model, chosen, task, window or 1000, out, interval, predictions, tell)
            stack.enter_context(closing(run)).go()
        _report(run, data, picture, time.perf_counter() - began, as_json)


def _resumed(path: Path, options: dict[str, Any]) -> tuple[Any, StreamState]:
    """Return a saved model and its state; raise an error for options that contradict them."""
    from meshnn.loading import load_fitted

    model = load_fitted(path)
    state = StreamState.of(model, path)
    schema = state.schema
    begun = {"target": schema.target, "by": schema.by, "task": schema.task, "drop": sorted(schema.drop),
             "text": sorted(schema.text), "max_categories": schema.most, "window": state.scores.window}  # fmt: skip
    for name, value in options.items():
        stored = begun[name] if name in begun else getattr(model, name)
        if isinstance(value, list):
            value = sorted(column_list(value, schema.columns)) or None
        if value is not None and value != stored:
            text = ", ".join(stored) if isinstance(stored, list) else stored
            option = f"--{name.replace('_', '-')}"
            raise MeshError(f"{option}: the resumed model was started with {text or 'none'}; leave the option out")
    return model, state


def _schema(source: Any, options: dict[str, Any]) -> StreamSchema:
    drop, text = (column_list(options[name], source.names) for name in ("drop", "text"))
    drop += [name for name in source.index if name not in (*drop, options["target"], options["by"])]  # of pandas
    most = 50 if options["max_categories"] is None else options["max_categories"]
    return StreamSchema(options["target"], options["by"], drop, text, most=most)


def _check_finished(out: Path) -> None:
    """Raise an error before overwriting an unfinished or unrepeatable stream, or a file of another command."""
    try:
        table = storage.read(out).get("table")
    except MeshError:
        table = None
    if not isinstance(table, dict):
        raise MeshError(f"--out: {out} exists and is not a model of `meshnn stream`; choose another file, or delete it")
    finished = table.get("finished")
    if table.get("source") == STANDARD_INPUT or not finished:
        how = f"--resume {shlex.quote(str(out))}{' --new-rows' if finished else ''}"
        problem = f"--out: {out} holds a stream of {table.get('rows', 0)} rows, which would be overwritten"
        raise MeshError(f"{problem}; continue with {how}, choose another file with --out, or delete it")


def _check_columns(source: Any, schema: StreamSchema) -> None:
    refuse({
        f"--drop: {schema.target} is the target; choose one of the two": schema.target in schema.drop,
        f"--by: {schema.by} is the target; pass the column that orders the rows": schema.by == schema.target,
    })  # fmt: skip
    used = [name for name in (schema.target, schema.by, *schema.drop, *schema.text) if name is not None]
    check_names(source.names, used, f"{source.name}: ")
    if set(source.names) <= {schema.target, schema.by, *schema.drop}:
        raise DataError(f"{source.name}: no column is left as a feature; drop fewer columns")


def _report(run: Run, data: Path, picture: Path | None, seconds: float, as_json: bool) -> None:
    """Show the scores, the files and, after an interruption, how to continue; exit with its code."""
    code, name, state, model = run.codes[0] if run.codes else 0, run.source.name, run.state, run.model
    if run.source.skipped:
        say_notes([f"{name}: {counted(run.source.skipped, 'row')} with too few or too many values skipped"])
    if model is None:
        if code:
            say_notes(["interrupted before the first row was learned: no model was written"])
            raise Exit(code)
        raise DataError(f"{name} has no rows below its header, expected at least one")
    target, task = state.schema.target, state.schema.task
    if model.n_samples_ == 0 and not code:
        raise DataError(
            f"{name}: none of {run.rows:,} rows has a value of {target}, so there is nothing to learn; check --target"
        )
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
        how = (
            ""
            if str(data) != "-"
            else " (with the same input from its beginning; or with --new-rows and the rows that follow)"
        )
        say_notes([f"interrupted after row {state.rows:,}; continue with: {again}{how}"])
        raise Exit(code)


def _draw(run: Run, picture: Path, data: Path) -> Path | None:
    from meshnn.plots import plot_stream, save_figure

    scores = run.state.scores
    title = f"{STANDARD_INPUT if str(data) == '-' else data.name}: {run.state.schema.target}, test then train"
    try:
        figure = plot_stream(scores.curve(), kind=scores.kind, window=scores.window, title=title)
        save_figure(figure, picture)
    except (MeshError, OSError) as error:
        say_notes([f"the plot could not be written: {error}"])
        return None
    return picture


def _show(facts: dict[str, Any], scores: Any) -> None:
    first = (
        f"{counted(facts['rows_of_this_run'], 'row')} in {facts['seconds']:.1f} s ({facts['rows_per_second']:,.0f}/s)"
    )
    first += f", {facts['rows']:,} in all runs" if facts["rows"] != facts["rows_of_this_run"] else ""
    first += f"; {facts['learned']:,} learned"
    missing = facts["rows"] - facts["learned"]
    first += f", {missing:,} without a target" if missing else ""
    sizes = [counted(len(facts["features"]), "feature")]
    sizes += [] if facts["classes"] is None else [counted(len(facts["classes"]), "class")]
    sizes += [counted(facts["hidden"], "hidden neuron"), counted(facts["parameters"], "parameter"), facts["learner"]]
    files = (what for what in ("model", "picture", "predictions") if facts[what])
    written = "; ".join(f"{what} written to {facts[what]}" for what in files)
    print_lines(first, *score_lines(scores), ", ".join(sizes), written, bold=1 if facts["scored"] else -1)
