"""`meshnn fit`: a model from a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console

from meshnn.arguments import FROM_0, POSITIVE, known, real_number, whole_number
from meshnn.cli.fit_options import Task, check_class_weight, graph_of, hidden_of, solver_with, structure_of, task_of
from meshnn.cli.fit_run import new_model, nothing_learned, tell, train
from meshnn.cli.output import check_output, counted, say_notes
from meshnn.cli.report import score_model
from meshnn.codes import ACTIVATIONS
from meshnn.errors import DataError, MeshError

__all__ = ["fit"]


Solver = Literal["auto", "lm", "adam", "sgd"]
ClassWeight = Literal["balanced"]
#: Text columns that are listed with their values before training.
MOST_LISTED = 8


def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="A table: .csv, .tsv (also .gz) or .parquet; - is standard input. Read block by block: a folder of "
            ".parquet files, a large one, or a .npy file.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Option("--target", "-y", help="The column to predict; of X.npy the file y.npy.", show_default=False),
    ],
    hidden: Annotated[
        str | None,
        typer.Option("--hidden", "-n", help="Hidden neurons, by default as suits the table; or layers: 10,5."),
    ] = None,
    topology: Annotated[
        Path | None, typer.Option("--topology", help="A graph instead: .json, .graphml or .npz.", show_default=False)
    ] = None,
    task: Annotated[Task, typer.Option("--task", help="Classes, numbers, or what the column looks like.")] = "auto",
    test: Annotated[float, typer.Option("--test", help="Share of the rows to test on; 0 trains on all.")] = 0.3,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the model.")] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", help="A column to leave out; may be repeated.")] = None,
    impute: Annotated[bool, typer.Option("--impute", help="Fill missing values in.")] = False,
    solver: Annotated[
        Solver, typer.Option("--solver", help="auto: adam for classes, lm for numbers in small tables.")
    ] = "auto",
    ticks: Annotated[int | None, typer.Option("--ticks", "-t", help="Ticks; by default as many as count.")] = None,
    activation: Annotated[str, typer.Option("--activation", "-a", help="Of the hidden neurons.")] = "auto",
    epochs: Annotated[
        int | None, typer.Option("--epochs", help="At most, by default enough; iterations of lm.", show_default=False)
    ] = None,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Of adam and sgd.")] = 0.007,
    batch: Annotated[int | None, typer.Option("--batch", help="Samples a step of adam and sgd takes.")] = None,
    l1: Annotated[float, typer.Option("--l1", help="Penalty that makes weights zero.")] = 0.0,
    l2: Annotated[float | None, typer.Option("--l2", help="Penalty on squared weights; found by trying.")] = None,
    tol: Annotated[float, typer.Option("--tol", help="Stop when the loss falls by less; 0 runs all epochs.")] = 1e-4,
    restarts: Annotated[int, typer.Option("--restarts", help="Starts; the best is kept.")] = 1,
    early_stopping: Annotated[
        bool, typer.Option("--early-stopping", help="Hold a tenth of the training rows out to know when to stop.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="A file to go on from after an interruption.")
    ] = None,
    edges: Annotated[
        int | None, typer.Option("--edges", help="Prune to so many connections while training.", show_default=False)
    ] = None,
    grow: Annotated[
        bool, typer.Option("--grow", help="Start with 2 hidden neurons and add more, up to --hidden, as they help.")
    ] = False,
    loss: Annotated[
        str | None, typer.Option("--loss", help="Of numbers: squared_error, huber (outliers) or poisson (counts).")
    ] = None,
    class_weight: Annotated[
        ClassWeight | None,
        typer.Option("--class-weight", help="Rows of rare classes count more, of frequent ones less."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the split and of the weights.")] = 0,
    threads: Annotated[int | None, typer.Option("--threads", help="By default as many as pay; -1: all cores.")] = None,
    scratch: Annotated[
        Path | None,
        typer.Option("--scratch", help="A folder with room for rows that are read block by block; MESHNN_SCRATCH."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", help="Who learns: dask:2 (processes here) or dask://host:8786 (a scheduler of Dask)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Train a model on a table, test it on rows it has not seen, and save it.

    Text columns become one feature per value (one-hot); missing values are refused unless --impute is given.

    [bold]Examples[/bold]

      meshnn fit iris.csv --target species --out iris.mesh

      meshnn fit houses.parquet --target price --hidden 8 --test 0.2 --drop id --impute

      meshnn fit data.csv --target y --topology graph.json --solver adam --epochs 1000

      meshnn fit data.csv --target y --hidden 30 --edges 200

      meshnn fit data.csv --target y --hidden 10,5

      meshnn fit claims.csv --target count --loss poisson

      zcat big.csv.gz | meshnn fit - --target y --class-weight balanced

      meshnn fit measured/ --target y --scratch /mnt/large --checkpoint run.mesh --out y.mesh

      meshnn fit measured/ --target y --on dask:4
    """
    from meshnn.cli.fit_far import Wanted, fit_far, is_far
    from meshnn.cli.fit_rows import place_of
    from meshnn.engine.threads import thread_count
    from meshnn.estimators.builder import SMOOTH
    from meshnn.tables.encoder import Encoder
    from meshnn.tables.reader import read_table
    from meshnn.tables.target import target_column
    from meshnn.topology.files import check_topology
    from meshnn.training import Checkpoint

    share = real_number("--test", test, "a number from 0 to below 1", lambda v: 0 <= v < 1)
    whole_number("--seed", seed, least=0, most=2**32 - 1)
    counts = {
        "epochs": epochs,
        "restarts": restarts,
        "batch": batch,
        "ticks": ticks,
        "edges": edges,
    }
    for name, count in counts.items():  # in the words of the command line, before anything is read
        if count is not None:
            whole_number(f"--{name}", count)
    thread_count("--threads", threads)
    size: Any = hidden_of(hidden) if hidden is not None else SMOOTH if grow else "auto"
    if l1 > 0 and solver == "lm":
        raise MeshError("--l1: lm cannot minimise it; take --solver adam or sgd, or --l2 instead")
    if hidden is not None and topology is not None:
        raise MeshError("--topology says how many hidden neurons there are; leave --hidden out")
    if grow and isinstance(size, tuple):
        raise MeshError("--grow adds neurons that may be connected with all others; give --hidden one number")
    if grow and topology is not None:
        raise MeshError("--grow starts with a net of its own; leave --topology out")
    if out is not None:
        check_output("--out", out, ".mesh")
        if checkpoint is not None and checkpoint.absolute() == out.absolute():
            raise MeshError("--checkpoint and --out name the same file; take another one for the checkpoint")
    numbers = {"--learning-rate": (learning_rate, POSITIVE), "--l1": (l1, FROM_0), "--tol": (tol, FROM_0)}
    for name, (value, allowed) in numbers.items():
        real_number(name, value, *allowed)
    if l2 is not None:
        real_number("--l2", l2, *FROM_0)
    known("--activation", activation, ["auto", *ACTIVATIONS])
    if (edges is not None or grow) and restarts > 1:
        raise MeshError("--restarts: a graph that changes (--edges, --grow) has one start; leave one of them out")
    if drop and target in drop:
        raise MeshError(f"--drop: {target} is the target; choose one of the two")
    if topology is not None:
        check_topology(topology)
    if checkpoint is not None:
        check_output("--checkpoint", checkpoint)
    task = task_of(task, loss, class_weight)
    place = place_of(on, scratch)
    options = {
        "hidden": size,
        "ticks": ticks,
        "activation": activation,
        "solver": solver_with(solver, learning_rate),
        "batch_size": "auto" if batch is None else batch,
        "max_epochs": "auto" if epochs is None else epochs,
        "l1": l1,
        "l2": "auto" if l2 is None else l2,
        "tol": tol,
        "n_restarts": restarts,
        "early_stopping": early_stopping,
        "callbacks": None if checkpoint is None else Checkpoint(checkpoint),
        "n_jobs": threads,
        "random_state": seed,
        "verbose": 0 if as_json else 1,
        "loss": loss,
    } | structure_of(edges, grow, size)
    if is_far(data, place):
        if impute:
            raise MeshError(
                f"--impute: what fills gaps is learned from whole columns, but {data} is read block by block; fill "
                "them before, or leave the rows out"
            )
        wanted = Wanted(target, task, list(drop or ()), share, seed, class_weight, topology, out, as_json, place)
        fit_far(data, wanted, options)
        return
    loaded = read_table(data)
    goal = target_column(loaded.table, target, task)
    check_class_weight(class_weight, goal.task)
    train_rows, held, untested = _split(goal.values, goal.task, share, seed)
    # The whole table is looked at for what must be refused, in its own row numbers; learned is from training rows only.
    whole = Encoder.learn(goal.table, target, drop or (), impute)
    encoder = Encoder.learn(goal.table.take(train_rows), target, drop or (), impute)
    encoded = encoder.encode(goal.table)
    X, y = encoded.X, goal.values
    notes = [*loaded.notes, *goal.notes, *whole.noted(encoder), *encoded.notes, *untested]
    n_outputs = len(np.unique(y)) if goal.task == "classify" else 1
    options["mesh"] = graph_of(topology, X.shape[1], n_outputs, encoder.feature_names)
    if goal.task == "classify":
        options["class_weight"] = class_weight
    if not as_json:
        say_notes(notes)
        _introduce(data, goal, encoder, train_rows, held)
    model = new_model(goal.task, options)
    seconds, warned, code = train(lambda: model.fit(X[train_rows], y[train_rows]))
    model.set_params(verbose=0)
    model.preprocessing_, model.target_ = replace(model.preprocessing_, encoder=encoder), target
    if code and len(model.history_) == 0:
        raise nothing_learned(code)
    report = score_model(model, goal.task, X[held], y[held], seed) if len(held) else None
    trained = score_model(model, goal.task, X[train_rows], y[train_rows], seed)
    facts = {"data": str(data), "target": target, "task": goal.task, "features": encoder.feature_names}
    tell(model, facts, report, trained, seconds, notes, warned, out, as_json, code)


def _split(y: Any, task: str, share: float, seed: int) -> tuple[Any, Any, list[str]]:
    """Rows to learn from and rows to test on; every class in both if there is enough of each. And notes about it."""
    from meshnn.tables.holdout import HoldoutSplit

    rows = np.arange(len(y))
    if share == 0:
        return rows, rows[:0], []
    n_test = int(np.ceil(share * len(rows)))
    if n_test >= len(rows) - 1:
        raise DataError(f"--test {share:g} leaves {len(rows) - n_test} of {len(rows)} rows to learn from; lower it")
    split = HoldoutSplit.stratified(len(rows), n_test, seed, y if task == "classify" else None)
    train, held = split.kept, split.held
    if len(held) == 0:
        raise DataError("every class has one row: there is nothing to test on; add rows, or pass --test 0")
    missing = [str(label) for label in np.setdiff1d(y, y[held])] if task == "classify" else []
    named = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
    return train, held, [f"too few rows to test all classes: {named} can only be learned"] * bool(missing)


def _introduce(data: Path, goal: Any, encoder: Any, train: Any, held: Any) -> None:
    name = "standard input" if str(data) == "-" else data.name
    what = f"{len(np.unique(goal.values))} classes" if goal.task == "classify" else "a number"
    lines = [
        f"{name}: {counted(len(train) + len(held), 'row')}, {counted(len(encoder.columns), 'column')} as "
        f"{counted(len(encoder.feature_names), 'feature')}, to predict {what}; {counted(len(train), 'row')} to learn "
        f"from, {len(held):,} to test on"
    ]
    texts = [f"  {line}" for line in encoder.describe() if "one-hot" in line]
    lines += texts if len(texts) <= MOST_LISTED else [*texts[:MOST_LISTED], f"  ... {len(texts):,} columns of text"]
    Console(stderr=True).print(*lines, sep="\n", markup=False, highlight=False, soft_wrap=True)
