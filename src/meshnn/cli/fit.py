"""`meshnn fit`: learn from a table, test, save."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from meshnn.arguments import known, whole_number
from meshnn.cli.output import check_output, collect_warnings, free_name, print_json, save_somewhere, say_notes, screen
from meshnn.cli.report import ClassMetrics, Report, ValueMetrics, show
from meshnn.cli.tables import Decimal, Encoding, Na, Sep, Thousands, read_options
from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError, TrainingInterrupted

__all__ = ["fit"]

Task = Literal["auto", "classify", "regress"]
Solver = Literal["auto", "lm", "adam", "sgd"]
#: Exit codes after Ctrl-C and after SIGTERM.
INTERRUPTED, TERMINATED = 130, 143


def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="A table: .csv, .tsv (also .gz), .parquet or .feather; - is standard input. Read block by block: a "
            "folder of .parquet files, a large one, or a .npy file.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Option("--target", "-y", help="The column to predict; of X.npy the file y.npy.", show_default=False),
    ],
    hidden: Annotated[
        str | None,
        typer.Option("--hidden", "-n", help="Number of hidden neurons, found by default; or layers: 10,5."),
    ] = None,
    mesh: Annotated[
        Path | None,
        typer.Option(
            "--mesh", help="A graph of your own: .json, .graphml or .npz; or a net, .mesh.", show_default=False
        ),
    ] = None,
    task: Annotated[
        Task, typer.Option("--task", help="Whether the target is classes or numbers; auto looks at the column.")
    ] = "auto",
    test: Annotated[
        float, typer.Option("--test", min=0, max=1, help="Share of the rows to test on; 0 trains on all.")
    ] = 0.3,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The model to write; by default named after the table.", show_default=False),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Columns to leave out, as id,name; may be repeated.")
    ] = None,
    max_categories: Annotated[
        int, typer.Option("--max-categories", min=2, help="Levels of a text column; rarer ones share one feature.")
    ] = 100,
    solver: Annotated[
        Solver, typer.Option("--solver", help="Solver; auto: adam for classes, lm for numbers in small tables.")
    ] = "auto",
    ticks: Annotated[
        int | None, typer.Option("--ticks", "-t", min=1, help="Number of ticks; by default as many as count.")
    ] = None,
    activation: Annotated[str, typer.Option("--activation", "-a", help="Activation of the hidden neurons.")] = "auto",
    max_epochs: Annotated[
        int | None,
        typer.Option("--max-epochs", min=1, help="Epochs at most, iterations of lm; by default enough."),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="Learning rate of adam and sgd; 0.007 by default.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", "-b", min=1, help="Samples in a step of adam and sgd.")
    ] = None,
    l1: Annotated[float, typer.Option("--l1", min=0, help="Penalty that makes weights zero.")] = 0.0,
    l2: Annotated[
        float | None, typer.Option("--l2", min=0, help="Penalty on squared weights; by default found by trying.")
    ] = None,
    tol: Annotated[
        float, typer.Option("--tol", min=0, help="Fall of the loss below which training stops; 0 runs all epochs.")
    ] = 1e-4,
    n_restarts: Annotated[
        int, typer.Option("--n-restarts", min=1, help="Starts from other weights; the best is kept.")
    ] = 1,
    early_stopping: Annotated[
        bool, typer.Option("--early-stopping", help="Hold a tenth of the training rows out to know when to stop.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="A file to continue from after an interruption.")
    ] = None,
    edges: Annotated[
        int | None, typer.Option("--edges", min=1, help="Number of edges to prune to while training.")
    ] = None,
    grow: Annotated[
        bool, typer.Option("--grow", help="Start with 2 hidden neurons and add more, up to --hidden, as they help.")
    ] = False,
    loss: Annotated[
        str | None,
        typer.Option("--loss", help="Loss of numbers: squared_error, huber (outliers), poisson (counts) or quantile."),
    ] = None,
    quantile: Annotated[
        float | None,
        typer.Option(
            "--quantile", min=0.001, max=0.999, help="With --loss quantile: share of rows below the prediction."
        ),
    ] = None,
    class_weight: Annotated[
        Literal["balanced"] | None,
        typer.Option("--class-weight", help="Weights of classes: rows of rare classes count more."),
    ] = None,
    random_state: Annotated[
        int, typer.Option("--random-state", "--seed", min=0, max=2**32 - 1, help="Seed of the split and the weights.")
    ] = 0,
    n_jobs: Annotated[
        int | None, typer.Option("--n-jobs", help="Number of threads, by default as many as pay; -1: all cores.")
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option("--scratch", help="A folder for rows that are read block by block; also MESHNN_SCRATCH."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", help="Workers that learn: dask:2 (processes here) or dask://host:8786 (a scheduler)."),
    ] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    encoding: Encoding = "utf-8",
    na: Na = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Train a model on a table, test it on rows it has not seen, and save it.

    Text columns become one feature per value (one-hot), dates become year, month, weekday and so on, missing values
    are filled in.

    [bold]Examples[/bold]

      meshnn fit iris.csv --target species --out iris.mesh

      meshnn fit houses.parquet --target price --hidden 8 --test 0.2 --drop id,name

      meshnn fit verkauf.csv --target preis --sep ";" --decimal ,

      meshnn fit data.csv --target y --mesh graph.json --solver adam --max-epochs 1000

      meshnn fit data.csv --target y --hidden 30 --edges 200

      meshnn fit data.csv --target y --hidden 10,5

      meshnn fit claims.csv --target count --loss poisson

      zcat big.csv.gz | meshnn fit - --target y --class-weight balanced

      meshnn fit measured/ --target y --scratch /mnt/large --checkpoint run.mesh --out y.mesh

      meshnn fit measured/ --target y --on dask:4
    """
    from meshnn.cli.fit_rows import FitRequest, open_rows, place_of
    from meshnn.training import Checkpoint

    known("--activation", activation, ["auto", *ACTIVATIONS])
    out = _place_of_model(out, data)
    if checkpoint is not None:
        check_output("--checkpoint", checkpoint)
        if checkpoint.resolve() == out.resolve():
            raise MeshError(f"--out and --checkpoint name the same file, {out}; name another one")
    if hidden is not None and mesh is not None:
        raise MeshError("--mesh says how many hidden neurons there are; leave --hidden out")
    if grow and mesh is not None:
        raise MeshError("--grow starts with a net of its own; leave --mesh out")
    if (edges is not None or grow) and n_restarts > 1:
        raise MeshError("--n-restarts: a graph that changes (--edges, --grow) has one start; leave one of them out")
    options = {
        "ticks": ticks, "activation": activation, "solver": _solvers(solver, learning_rate), "l1": l1,
        "l2": "auto" if l2 is None else l2, "batch_size": "auto" if batch_size is None else batch_size,
        "max_epochs": "auto" if max_epochs is None else max_epochs, "tol": tol, "n_restarts": n_restarts,
        "early_stopping": early_stopping, "max_categories": max_categories, "loss": loss, "mesh": _prototype(mesh),
        "callbacks": None if checkpoint is None else Checkpoint(checkpoint), "n_jobs": n_jobs,
        "random_state": random_state, "verbose": 0 if as_json else 1,
    } | _sizes(hidden, edges, grow)  # fmt: skip
    task = _task(task, loss, class_weight)
    if quantile is not None:
        if loss != "quantile":
            raise MeshError("--quantile is for --loss quantile; add it, or leave --quantile out")
        options["quantile"] = quantile
    _model("classify" if class_weight else task, options, class_weight)._settings()  # refuses before a table is read
    read = read_options(sep, decimal, thousands, encoding, na)
    place = place_of(on, scratch)
    rows = open_rows(FitRequest(data, target, task, drop, test, random_state, read, place, not as_json, max_categories))
    if class_weight is not None and rows.task == "regress":
        raise MeshError("--class-weight: the target is a number, not classes; leave it out, or pass --task classify")
    model = _model(rows.task, options, class_weight)
    if not as_json:
        say_notes(rows.notes)
        screen(stderr=True).print(rows.introduction(), markup=False, highlight=False, soft_wrap=True)
    seconds, warned, code = _train(model, rows)
    model.set_params(verbose=0)
    model.target_ = target
    test_rows, train_rows = rows.parts()
    report = None if test_rows is None else _scored(model, *test_rows, target, warned)
    trained = _scored(model, *train_rows, target, [])
    out, failure = save_somewhere(model, out)
    if as_json:
        facts = {"data": str(data), "target": target, "task": rows.task, "features": rows.features(model)}
        print_json(facts | _facts(model, report, trained, seconds, rows.notes + warned, out))
    else:
        say_notes(warned)
        show(screen(), model, report, trained, seconds, out)
    if failure is not None:
        raise MeshError(f"{failure}; the model was written to {out} instead")
    if code:
        raise typer.Exit(code)


def _place_of_model(out: Path | None, data: Path) -> Path:
    """Where the model goes: as asked for, or a free name after the table."""
    if out is None:
        stem = "model" if str(data) == "-" else data.resolve().name.partition(".")[0] or "model"
        out = free_name(Path(), Path(f"{stem}.mesh"))
    check_output("--out", out, ".mesh")
    if out.exists() and data.exists() and out.samefile(data):
        raise MeshError(f"--out: {out} is the table, which would be lost; name another file")
    return out


def _solvers(name: str, learning_rate: float | None) -> Any:
    """The solvers of a name, with this learning rate where they have one."""
    from meshnn.training.solvers import candidates

    if learning_rate is None:
        return name
    if name == "lm":
        raise MeshError("--learning-rate is for adam and sgd; leave it out")
    found = list(candidates(name))
    for solver in found:
        if "learning_rate" in solver.get_params():
            solver.set_params(learning_rate=learning_rate)
    return found if len(found) > 1 else found[0]


def _sizes(hidden: str | None, edges: int | None, grow: bool) -> dict[str, Any]:
    """The parameters `hidden` and `structure`."""
    from meshnn.estimators.builder import SMOOTH
    from meshnn.training import structure

    size: Any = SMOOTH if grow else "auto"
    if hidden is not None:
        sizes = [part.strip() for part in hidden.split(",")]
        if not all(part.isdecimal() for part in sizes):
            raise MeshError(f"--hidden must be a whole number, or sizes of layers like 10,5, got {hidden!r}")
        numbers = [whole_number("--hidden", int(part), least=0) for part in sizes]
        size = numbers[0] if len(numbers) == 1 else tuple(numbers)
    if not grow:
        return {"hidden": size, "structure": None if edges is None else structure.Prune(to=edges)}
    if isinstance(size, tuple):
        raise MeshError("--grow adds neurons that may be connected with all others; give --hidden one number")
    policies: list[Any] = [structure.Grow(to=max(size, 1))]
    if edges is not None:
        policies.append(structure.Prune(to=edges, start="given", begin=0.5, end=0.9))
    return {"hidden": min(2, size), "structure": policies}


def _prototype(path: Path | None) -> Any:
    """The graph or net of a file, for the parameter `mesh`."""
    if path is None:
        return None
    if path.suffix.lower() == ".mesh":
        from meshnn.loading import load_fitted

        found = load_fitted(path)
        return getattr(found, "mesh_", found)
    from meshnn.topology.files import check_topology, read_topology

    check_topology(path)
    return lambda n_inputs, n_outputs: read_topology(path, n_inputs, n_outputs)


def _task(task: Task, loss: str | None, class_weight: str | None) -> Task:
    """What loss and class weights leave of the choice."""
    if loss is not None:
        from meshnn.losses import LOSSES

        meant: Task = "classify" if LOSSES[known("--loss", loss, LOSSES)].classifies else "regress"
        if task not in ("auto", meant):
            raise MeshError(f"--loss {loss} is for --task {meant}; leave one of them out")
        task = meant
    if class_weight is not None and task == "regress":
        raise MeshError("--class-weight: there are no classes in a regression; leave it out")
    return task


def _model(task: str, options: dict[str, Any], class_weight: str | None) -> Any:
    from meshnn.estimators import MeshClassifier, MeshRegressor

    if task == "classify":
        return MeshClassifier(**options, class_weight=class_weight)
    return MeshRegressor(**options)


def _train(model: Any, rows: Any) -> tuple[float, list[str], int]:
    """Seconds, what the user should know, and the exit code if training was interrupted, else 0."""
    from meshnn.training.signals import sigterm_interrupts

    caught: list[Warning] = []
    said: list[str] = []
    terminated: list[int] = []
    began, code = time.perf_counter(), 0
    with collect_warnings(caught):
        try:
            with sigterm_interrupts(terminated), rows.opened(model) as given:
                began = time.perf_counter()
                model.fit(*given)
        except TrainingInterrupted as stop:
            further = "" if stop.checkpoint is None else "; run the same command again to go on"
            said.append(f"interrupted after epoch {stop.epoch}: the best weights so far are kept{further}")
            code = TERMINATED if terminated else INTERRUPTED
        except KeyboardInterrupt:
            code = TERMINATED if terminated else INTERRUPTED
    if code and not len(getattr(model, "history_", ())):
        say_notes(["interrupted before the first epoch was done: nothing was learned, nothing is written"])
        raise typer.Exit(code)
    seconds, notes = time.perf_counter() - began, [str(warning) for warning in caught]
    encoder = getattr(model, "encoder_", None)
    notes = [] if encoder is None else [*encoder.noted(), *notes]
    return seconds, [note for note in dict.fromkeys(notes) if note not in rows.notes] + said, code


def _scored(model: Any, X: Any, y: Any, target: str, notes: list[str]) -> Report:
    """How good the model is on some rows; some class may be in none that was learned from."""
    scores: ClassMetrics | ValueMetrics
    caught: list[Warning] = []
    with collect_warnings(caught):
        predicted = model.predict(X)
    notes += [str(warning) for warning in caught]
    if not hasattr(model, "classes_"):
        scores = ValueMetrics()
        scores.add(np.asarray(y, np.float64), predicted)
    else:
        scores = ClassMetrics(model.classes_)
        place = np.minimum(np.searchsorted(model.classes_, y), len(model.classes_) - 1)
        truth = np.where(model.classes_[place] == y, place, -1)
        scores.add(truth, predicted, example=y[truth < 0][0] if (truth < 0).any() else None)
    report, said = scores.report(target)
    notes += said
    return report


def _facts(
    model: Any, report: Report | None, trained: Report, seconds: float, notes: list[str], out: Path
) -> dict[str, Any]:
    mesh = model.mesh_
    return {
        "classes": [str(c) for c in model.classes_] if hasattr(model, "classes_") else None,
        "test": None if report is None else report.to_dict(),
        "train": trained.to_dict(),
        "edges": mesh.topology.n_edges,
        "hidden": mesh.topology.n_hidden,
        "live_edges": mesh.topology.n_edges - int(mesh.dead_edges().sum()),
        "ticks": mesh.ticks,
        "solver": model.solver_,
        "solver_reason": model.solver_reason_,
        "l2": model.l2_,
        "epochs": model.n_iter_,
        "loss": model.history_[-1].loss if len(model.history_) else None,
        "history_notes": model.history_.notes,
        "seconds": seconds,
        "notes": notes,
        "model": str(out),
    }
