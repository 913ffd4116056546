"""`meshnn stream`: a model that learns from the rows of a table one after the other, and is tested on each before."""

from __future__ import annotations

import shlex
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from meshnn.arguments import whole_number
from meshnn.cli.output import check_output, say_notes
from meshnn.errors import DataError, FileError, MeshError

__all__ = ["stream"]

Task = Literal["auto", "classify", "regress"]
Memory = Literal["none", "carry"]
Learner = Literal["ekf", "adam", "sgd"]
#: What those options are where they are not given; with --resume the model says it.
HIDDEN, WINDOW, LEVELS = 16, 1000, 50


def stream(
    data: Annotated[
        Path,
        typer.Argument(
            help="A table in the order of time: .csv, .tsv (also .gz), .parquet or a folder of such, by name; "
            "- is standard input (CSV), row by row as it comes.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str | None, typer.Option("--target", "-y", help="The column to predict.", show_default=False)
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", help="The column that orders the rows, a number or a time: checked, not learned from."),
    ] = None,
    task: Annotated[Task, typer.Option("--task", help="Classes, numbers, or what the first rows look like.")] = "auto",
    drop: Annotated[list[str] | None, typer.Option("--drop", help="A column to leave out; may be repeated.")] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", help="A column of numbers that are names; may be repeated.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Names of the columns, a,b,c: of text without a header line.")
    ] = None,
    hidden: Annotated[
        int | None, typer.Option("--hidden", "-n", help=f"Hidden neurons; {HIDDEN} by default.", show_default=False)
    ] = None,
    memory: Annotated[
        Memory | None,
        typer.Option("--memory", help="carry: the state of the net goes on from row to row.", show_default=False),
    ] = None,
    learner: Annotated[
        Learner | None, typer.Option("--learner", help="ekf by default; adam and sgd are cheaper.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the first weights; 0.", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The model; by default named after the table, here.", show_default=False),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option("--predictions", "-p", help="A .csv with what was predicted before each target was seen."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture", help="The curve: .png, .svg or .pdf; by default beside the model.", show_default=False
        ),
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw none.")] = False,
    every: Annotated[str, typer.Option("--every", help="Save the model every so many rows, or 30s, 5m.")] = "10s",
    window: Annotated[
        int | None, typer.Option("--window", help=f"Rows of the running scores; {WINDOW}.", show_default=False)
    ] = None,
    levels: Annotated[
        int | None,
        typer.Option("--levels", help=f"Most texts a column has features for; {LEVELS}.", show_default=False),
    ] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave rows out that have too few or too many values.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="A model of this command: go on at the next row.")
    ] = None,
    new_rows: Annotated[
        bool, typer.Option("--new-rows", help="With --resume: the table begins with the next row, not with the first.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No live line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Learn from a table row by row, in constant memory; every row is predicted before it is learned.

    Numbers are features, texts get one for each value ("colour=red"), empty cells are missing; features and classes may
    turn up at any time. A row without a target is predicted only. Ctrl-C and SIGTERM save the model; --resume goes on.

    [bold]Examples[/bold]

      meshnn stream power.csv --target load --by time

      tail -n +1 -f log.csv | meshnn stream - --target failed --drop id --out log.mesh

      meshnn stream power.csv --resume power.mesh

      meshnn stream tuesday.csv --resume monday.mesh --new-rows --out tuesday.mesh
    """
    from meshnn.cli.stream_live import Live
    from meshnn.cli.stream_report import called, report
    from meshnn.cli.stream_run import Every, Predictions, Run
    from meshnn.files import Lock
    from meshnn.tables.reader import open_table
    from meshnn.tables.streams import StreamSchema

    often = Every(every)
    given = {"hidden": hidden, "memory": memory, "learner": learner, "random_state": seed}
    _check_numbers(hidden, seed, window, levels)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if picture is not None and no_picture:
        raise MeshError("--picture and --no-picture: leave one of them out")
    if new_rows and resume is None:
        raise MeshError("--new-rows goes with --resume model.mesh")
    if resume is None and target is None:
        raise MeshError("--target: name the column to predict")
    model, table, recipe = None, None, None
    if resume is not None:
        model, table, recipe = _resumed(resume)
        _check_same(recipe, model, target, by, task, drop, text, given, levels, window, table)
    out = _place(out, resume, data)
    shape = _picture(picture, no_picture, out)
    _check_predictions(predictions, data, out)
    lock = Lock(out)
    try:
        if resume is None:
            _check_unfinished(out)
        if recipe is not None and new_rows and names is None and str(data) == "-":
            names = list(recipe.columns)  # lines that follow others have no header; if there is one, it is noticed
        with closing(open_table(data, columns=names, skip_broken=skip_broken)) as source:
            say_notes(source.notes)
            if recipe is None:
                assert target is not None
                recipe = StreamSchema(
                    target, by, list(drop or ()), list(text or ()), most=LEVELS if levels is None else levels
                )
            _check_columns(source, recipe)
            if model is None or new_rows:
                recipe.columns = list(dict.fromkeys([*recipe.columns, *source.names]))
            run = Run(
                source, recipe, lambda kind: _new_model(kind, given), task, out, often,
                Live(called(data), quiet or as_json), window or WINDOW,
                None if predictions is None else lambda: Predictions(predictions, recipe),
            )  # fmt: skip
            with closing(run):
                if table is not None:
                    _go_on(run, model, table, new_rows, predictions)
                began = time.perf_counter()
                run.go()
        report(run, data, shape, time.perf_counter() - began, as_json)
    finally:
        lock.release()


def _new_model(kind: str, given: dict[str, Any]) -> Any:
    from meshnn.online import MeshStreamClassifier, MeshStreamRegressor

    chosen = {"hidden": HIDDEN, "random_state": 0} | {name: v for name, v in given.items() if v is not None}
    return MeshStreamClassifier(**chosen) if kind == "classify" else MeshStreamRegressor(**chosen)


# -- what is asked ---------------------------------------------------------------------------------------------------


def _check_numbers(hidden: int | None, seed: int | None, window: int | None, levels: int | None) -> None:
    if hidden is not None:
        whole_number("--hidden", hidden, least=0, most=100_000)
    if seed is not None:
        whole_number("--seed", seed, least=0, most=2**32 - 1)
    if window is not None:
        whole_number("--window", window, least=2, most=1_000_000)
    if levels is not None:
        whole_number("--levels", levels, least=0, most=100_000)


def _resumed(path: Path) -> tuple[Any, dict[str, Any], Any]:
    """The model of a file, what is kept beside it, and what its columns are."""
    from meshnn.loading import load_fitted
    from meshnn.tables.streams import StreamSchema

    model = load_fitted(path)
    table = getattr(model, "table_", None)
    if table is None:
        raise MeshError(f"--resume: {path} was not made by `meshnn stream`; name a model that was")
    try:
        return model, table, StreamSchema.from_dict(table["recipe"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path} does not hold a stream that makes sense ({error}); start anew") from None


def _check_same(
    recipe: Any, model: Any, target: str | None, by: str | None, task: str, drop: Any, text: Any, given: dict[str, Any],
    levels: int | None, window: int | None, table: dict[str, Any],
) -> None:  # fmt: skip
    """Refuse options that contradict the model that goes on."""
    asked = {"target": (target, recipe.target), "by": (by, recipe.by), "levels": (levels, recipe.most),
             "task": (None if task == "auto" else task, recipe.task),
             "drop": (sorted(drop) if drop else None, sorted(recipe.drop)),
             "text": (sorted(text) if text else None, sorted(recipe.text)),
             "window": (window, table["scores"]["window"])}  # fmt: skip
    asked |= {name.replace("random_state", "seed"): (value, getattr(model, name)) for name, value in given.items()}
    for name, (wanted, there) in asked.items():
        if wanted is not None and wanted != there:
            had = "none" if there in (None, []) else there if not isinstance(there, list) else ", ".join(there)
            raise MeshError(f"--{name}: the model that goes on was begun with {had}; leave the option out")


def _place(out: Path | None, resume: Path | None, data: Path) -> Path:
    """Where the model is written."""
    if out is None:
        named = "stream" if str(data) == "-" else data.name.split(".")[0] or "stream"
        out = Path(f"{named}.mesh") if resume is None else resume
    check_output("--out", out, ".mesh")
    if out.exists() and data.exists() and out.samefile(data):
        raise MeshError(f"--out: {out} is the table, which would be lost; name another file")
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
    if not table.get("finished"):
        raise MeshError(
            f"--out: {out} holds a stream that was interrupted after {table.get('rows', 0)} rows; go on with "
            f"--resume {shlex.quote(str(out))}, or delete it to start anew"
        )
    if table.get("source") == STANDARD_INPUT:  # a table can be read again, what came in cannot
        raise MeshError(
            f"--out: {out} holds a finished stream of {table.get('rows', 0)} rows from standard input, which would be "
            f"lost; learn more rows with --resume {shlex.quote(str(out))} --new-rows, name another file with --out, or "
            "delete it"
        )


def _picture(picture: Path | None, none: bool, out: Path) -> Path | None:
    if none:
        return None
    from meshnn.plots.save import check_figure_path

    chosen = out.with_suffix(".png") if picture is None else check_figure_path(picture)
    check_output("--picture", chosen)
    return chosen


def _check_predictions(predictions: Path | None, data: Path, out: Path) -> None:
    if predictions is None:
        return
    check_output("--predictions", predictions, ".csv")
    for option, other in (("the table", data), ("the model", out)):
        if predictions.exists() and other.exists() and predictions.samefile(other):
            raise MeshError(f"--predictions: {predictions} is {option}, which would be lost; name another file")


def _check_columns(source: Any, recipe: Any) -> None:
    from meshnn.tables.names import check_names

    if recipe.target in recipe.drop:
        raise MeshError(f"--drop: {recipe.target} is the target; choose one of the two")
    if recipe.by == recipe.target:
        raise MeshError(f"--by: {recipe.by} is the target; name the column that orders the rows")
    names = [recipe.target, *([recipe.by] if recipe.by is not None else []), *recipe.drop, *recipe.text]
    try:
        check_names(source.names, names, f"{source.name}: ")
    except DataError as error:
        if not source.live or not any(_is_number(cell) for cell in source.first_line):
            raise
        raise DataError(
            f"{error}. If these are values: `tail -n +1 -f file` sends the header line, too; or name the columns with "
            "--columns a,b,c"
        ) from None
    if set(source.names) <= {recipe.target, recipe.by, *recipe.drop}:
        raise DataError(f"{source.name}: no column is left to learn from; drop fewer")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _go_on(run: Any, model: Any, table: dict[str, Any], new_rows: bool, predictions: Path | None) -> None:
    """Set a run to where another one was saved."""
    from meshnn.cli.stream_run import Predictions
    from meshnn.online.scores import scores_from
    from meshnn.tables.blocks import Position

    try:
        position, kept = Position(**table["position"]), table["predictions"]
        latest = None if table["latest"] is None else tuple(table["latest"])
        scores, base = scores_from(table["scores"]), int(table["rows" if new_rows else "base"])
        begin = None if kept is None else int(kept["bytes"])
        before = None if kept is None else Path(kept["path"])
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"the model does not hold a stream that makes sense ({error}); start anew") from None
    if not new_rows:
        run.source.go_to(position)
    path = before if predictions is None else predictions
    opened = None
    if path is not None:
        same = before is not None and path.absolute() == before and path.exists()
        if predictions is None and not same:
            say_notes([f"{path} is gone, where predictions were written to; pass --predictions to write them again"])
        else:
            opened = lambda: Predictions(path, run.recipe, begin if same else None)  # noqa: E731
    run.resume(model, scores, base, latest, opened)
