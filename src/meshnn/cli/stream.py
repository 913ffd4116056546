"""`meshnn stream`: a model that learns from the rows of a table one by one, and is tested on each before."""

from __future__ import annotations

import re
import shlex
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from meshnn.cli.options import AsJson, By, Picture, Target
from meshnn.cli.output import check_output, say_notes
from meshnn.cli.tables import Decimal, Encoding, Na, Sep, Thousands, column_list, read_options
from meshnn.errors import DataError, MeshError

__all__ = ["stream"]

Task = Literal["auto", "classify", "regress"]
Memory = Literal["none", "carry"]
Learner = Literal["ekf", "adam", "sgd"]


def stream(
    data: Annotated[
        Path,
        typer.Argument(
            help="A table in the order of time: .csv, .tsv (also .gz), .parquet or a folder of such, by name; "
            "- is standard input (CSV), row by row as it comes.",
            show_default=False,
        ),
    ],
    target: Target = None,
    by: By = None,
    task: Annotated[
        Task, typer.Option("--task", help="Whether the target is classes or numbers; auto looks at the first rows.")
    ] = "auto",
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Columns to leave out, as id,name; may be repeated.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", help="Columns of numbers that are names, as zip,id; may be repeated.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Names of the columns, as a,b,c, of text without a header line.")
    ] = None,
    max_categories: Annotated[
        int | None,
        typer.Option("--max-categories", min=0, max=100_000, help="Levels of a text column that get a feature; 50."),
    ] = None,
    hidden: Annotated[
        int | None, typer.Option("--hidden", "-n", min=0, max=100_000, help="Number of hidden neurons; 16 by default.")
    ] = None,
    memory: Annotated[
        Memory | None, typer.Option("--memory", help="State of the net: carry keeps it from row to row, none does not.")
    ] = None,
    learner: Annotated[
        Learner | None, typer.Option("--learner", help="Learner: ekf by default; adam and sgd are cheaper.")
    ] = None,
    random_state: Annotated[
        int | None,
        typer.Option("--random-state", "--seed", min=0, max=2**32 - 1, help="Seed of the first weights; 0 by default."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The model to write; by default named after the table.", show_default=False),
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option("--predictions", help="A .csv with the prediction of each row before it was learned.")
    ] = None,
    picture: Picture = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw no picture of the scores.")] = False,
    every: Annotated[
        str, typer.Option("--every", help="Rows, as 5000, or time, as 30s or 5m, between two saves of the model.")
    ] = "10s",
    window: Annotated[
        int | None, typer.Option("--window", min=2, max=1_000_000, help="Rows of the recent scores; 1000 by default.")
    ] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out rows with too few or too many values.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="A model of this command that continues at the next row.")
    ] = None,
    new_rows: Annotated[
        bool, typer.Option("--new-rows", help="With --resume: the table begins with the next row, not with the first.")
    ] = False,
    sep: Sep = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    encoding: Encoding = "utf-8",
    na: Na = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
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
    from meshnn.cli.stream_report import report
    from meshnn.cli.stream_run import Every, Run, RunOptions
    from meshnn.files import Lock
    from meshnn.tables.reader import open_table

    if picture is not None and no_picture:
        raise MeshError("--picture and --no-picture: leave one of them out")
    if new_rows and resume is None:
        raise MeshError("--new-rows goes with --resume model.mesh")
    if resume is None and target is None:
        raise MeshError("--target: name the column to predict")
    often, read = Every(every), read_options(sep, decimal, thousands, encoding, na)
    net = {"hidden": hidden, "memory": memory, "learner": learner, "random_state": random_state}
    asked = net | {"target": target, "by": by, "task": None if task == "auto" else task, "drop": drop, "text": text,
                   "max_categories": max_categories, "window": window}  # fmt: skip
    saved = None if resume is None else _resumed(resume, asked)
    if saved is not None and read == read_options(None, ".", None, "utf-8", None):
        read = saved.read
    out = _place(out, resume, data)
    if predictions is not None:
        check_output("--predictions", predictions, ".csv", {"the table": data, "the model": out})
    figure = None if no_picture else _figure(picture, out)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if saved is not None and new_rows and names is None and str(data) == "-":
        names = list(saved.schema.columns)  # lines that follow others have no header; if there is one, it is noticed
    chosen = {"hidden": 16, "random_state": 0} | {name: value for name, value in net.items() if value is not None}
    options = RunOptions(chosen, task, out, often, window or 1000, predictions, new_rows, read, quiet or as_json)
    with ExitStack() as stack:
        stack.callback(Lock(out).release)
        if saved is None:
            _check_unfinished(out)
        as_text = [part for each in text or () for part in (each, *each.split(","))]
        source = stack.enter_context(closing(open_table(data, read, names, skip_broken, as_text)))
        say_notes(source.notes)
        schema = _schema(source, asked) if saved is None else saved.schema
        _check_columns(source, schema)
        if saved is None or new_rows:
            schema.columns = list(dict.fromkeys([*schema.columns, *source.names]))
        run = stack.enter_context(closing(Run(source, schema, options, saved)))
        began = time.perf_counter()
        run.go()
        report(run, data, figure, time.perf_counter() - began, as_json)


def _resumed(path: Path, asked: dict[str, Any]) -> Any:
    """Return the saved run of a model; refuse options that contradict it."""
    from meshnn.cli.stream_run import SavedRun

    saved = SavedRun.load(path)
    schema, model = saved.schema, saved.model
    begun = {"target": schema.target, "by": schema.by, "task": schema.task, "drop": sorted(schema.drop),
             "text": sorted(schema.text), "max_categories": schema.most, "window": saved.scores.window}  # fmt: skip
    for name, wanted in asked.items():
        there = begun[name] if name in begun else getattr(model, name)
        if isinstance(wanted, list):
            wanted = sorted(column_list(wanted, schema.columns)) or None
        if wanted is not None and wanted != there:
            had = ", ".join(there) if isinstance(there, list) else there
            option = f"--{name.replace('_', '-')}"
            raise MeshError(f"{option}: the model that goes on was begun with {had or 'none'}; leave the option out")
    return saved


def _schema(source: Any, asked: dict[str, Any]) -> Any:
    from meshnn.tables.streams import StreamSchema

    drop, text = (column_list(asked[name], source.names) for name in ("drop", "text"))
    drop += [name for name in source.index if name not in (*drop, asked["target"], asked["by"])]  # of pandas
    most = 50 if asked["max_categories"] is None else asked["max_categories"]
    return StreamSchema(asked["target"], asked["by"], drop, text, most=most)


def _place(out: Path | None, resume: Path | None, data: Path) -> Path:
    """Return where the model is written."""
    if out is None:
        named = "stream" if str(data) == "-" else data.name.split(".")[0] or "stream"
        out = Path(f"{named}.mesh") if resume is None else resume
    check_output("--out", out, ".mesh", {"the table": data})
    return out


def _check_unfinished(out: Path) -> None:
    """Do not write over hours of learning, nor over what another command made."""
    from meshnn import storage
    from meshnn.tables.reader import STANDARD_INPUT

    if not out.exists():
        return
    try:
        tree = storage.read(out)
    except MeshError:
        tree = {}
    table = tree.get("table") if str(tree.get("kind")).startswith("stream ") else None
    if not isinstance(table, dict):
        raise MeshError(f"--out: {out} is there already and no stream; name another file with --out, or delete it")
    live = table.get("source") == STANDARD_INPUT  # a table can be read again, standard input cannot
    if live or not table.get("finished"):
        what = "a finished stream" if table.get("finished") else "a stream that was interrupted"
        more = " --new-rows" if table.get("finished") else ""
        raise MeshError(
            f"--out: {out} holds {what} after {table.get('rows', 0)} rows, which would be lost; go on with --resume "
            f"{shlex.quote(str(out))}{more}, name another file with --out, or delete it"
        )


def _figure(picture: Path | None, out: Path) -> Path:
    from meshnn.plots.save import check_figure_path

    chosen = out.with_suffix(".png") if picture is None else check_figure_path(picture)
    check_output("--picture", chosen)
    return chosen


def _check_columns(source: Any, schema: Any) -> None:
    from meshnn.tables.names import check_names

    if schema.target in schema.drop:
        raise MeshError(f"--drop: {schema.target} is the target; choose one of the two")
    if schema.by == schema.target:
        raise MeshError(f"--by: {schema.by} is the target; name the column that orders the rows")
    try:
        check_names(
            source.names, [name for name in (schema.target, schema.by, *schema.drop, *schema.text) if name is not None],
            f"{source.name}: ",
        )  # fmt: skip
    except DataError as error:
        if source.live and any(re.fullmatch(r"\s*[+-]?\d[\d.]*\s*", cell) for cell in source.first_line):
            error.code = "header"
        raise
    if set(source.names) <= {schema.target, schema.by, *schema.drop}:
        raise DataError(f"{source.name}: no column is left to learn from; drop fewer")
