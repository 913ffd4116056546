"""`meshnn fit`: train a model on a table, test it, save it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from typer import Argument, Exit, Option

from meshnn.arguments import known, whole_number
from meshnn.cli.options import Activation, AsJson, Drop, ModelOut, Seed, TaskOption, Ticks, with_read_options
from meshnn.cli.output import (
    check_output,
    collect_warnings,
    counted,
    free_name,
    print_json,
    print_lines,
    save_somewhere,
    say_notes,
)
from meshnn.cli.scores import Report, Scores, show_confusion
from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError, TrainingInterrupted

Solver = Literal["auto", "lm", "adam", "sgd"]


@with_read_options
def fit(
    data: Annotated[
        Path,
        Argument(
            help="A table: .csv, .tsv (also .gz), .parquet or .feather; - is standard input. Read block by block: a "
            "folder of .parquet files, a large one, or a .npy file."
        ),
    ],
    target: Annotated[str, Option("--target", "-y", help="The column to predict; of X.npy the file y.npy.")],
    hidden: Annotated[
        str | None, Option("--hidden", "-n", help="Number of hidden neurons, or layers as 10,5; chosen by default.")
    ] = None,
    mesh: Annotated[Path | None, Option(help="A graph, .json, .graphml or .npz, or a net, .mesh, to train.")] = None,
    task: TaskOption = "auto",
    test: Annotated[float, Option(min=0, max=1, help="Share of the rows to test on; 0 trains on all.")] = 0.3,
    out: ModelOut = None,
    drop: Drop = None,
    max_categories: Annotated[int, Option(min=2, help="Levels of a text column; rarer ones share one feature.")] = 100,
    solver: Annotated[Solver, Option(help="Solver; auto: adam for classes, lm for numbers in small tables.")] = "auto",
    ticks: Ticks = None,
    activation: Activation = "auto",
    max_epochs: Annotated[int | None, Option(min=1, help="Maximum number of epochs, or of iterations of lm.")] = None,
    learning_rate: Annotated[float | None, Option(help="Learning rate of adam and sgd; 0.007 by default.")] = None,
    batch_size: Annotated[
        int | None, Option("--batch-size", "-b", min=1, help="Samples per step of adam and sgd.")
    ] = None,
    l1: Annotated[float, Option(min=0, help="Penalty that makes weights zero.")] = 0.0,
    l2: Annotated[float | None, Option(min=0, help="Penalty on squared weights; by default a search finds it.")] = None,
    tol: Annotated[float, Option(min=0, help="Fall of the loss below which training stops; 0: never.")] = 1e-4,
    n_restarts: Annotated[int, Option(min=1, help="Number of initialisations, the best of which is kept.")] = 1,
    early_stopping: Annotated[
        bool, Option("--early-stopping", help="Hold out a tenth of the training rows and stop when they say so.")
    ] = False,
    checkpoint: Annotated[Path | None, Option(help="A file to continue from after an interruption.")] = None,
    edges: Annotated[int | None, Option(min=1, help="Number of edges to prune to while training.")] = None,
    grow: Annotated[
        bool, Option("--grow", help="Start with 2 hidden neurons and add more, up to --hidden, as they help.")
    ] = False,
    loss: Annotated[
        str | None, Option(help="Loss of numbers: squared_error, huber (outliers), poisson (counts) or quantile.")
    ] = None,
    quantile: Annotated[
        float | None, Option(min=0.001, max=0.999, help="Share of rows below the prediction, with --loss quantile.")
    ] = None,
    class_weight: Annotated[
        Literal["balanced"] | None, Option(help="Weights of classes: rows of rare classes count more.")
    ] = None,
    random_state: Seed = 0,
    n_jobs: Annotated[int | None, Option(help="Number of threads, by default as many as pay; -1: all cores.")] = None,
    scratch: Annotated[
        Path | None, Option(help="A folder for rows that are read block by block; also MESHNN_SCRATCH.")
    ] = None,
    on: Annotated[
        str | None, Option(help="Workers that train: dask:2 (processes here) or dask://host:8786 (a scheduler).")
    ] = None,
    read: Any = None,
    as_json: AsJson = False,
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
    from meshnn.cli.fit_rows import BlockRows, FitRequest, TableRows, workers
    from meshnn.training import Checkpoint

    known("--activation", activation, ["auto", *ACTIVATIONS])
    if out is None:
        stem = "model" if str(data) == "-" else data.resolve().name.partition(".")[0] or "model"
        out = free_name(Path(), Path(f"{stem}.mesh"))
    check_output("--out", out, ".mesh", {"the table": data})
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
    if quantile is not None and loss != "quantile":
        raise MeshError("--quantile is for --loss quantile; add it, or leave --quantile out")
    options = {
        "ticks": ticks, "activation": activation, "solver": _solvers(solver, learning_rate), "l1": l1,
        "l2": "auto" if l2 is None else l2, "batch_size": "auto" if batch_size is None else batch_size,
        "max_epochs": "auto" if max_epochs is None else max_epochs, "tol": tol, "n_restarts": n_restarts,
        "early_stopping": early_stopping, "max_categories": max_categories, "loss": loss, "mesh": _prototype(mesh),
        "callbacks": None if checkpoint is None else Checkpoint(checkpoint), "n_jobs": n_jobs,
        "random_state": random_state, "verbose": 0 if as_json else 1,
    } | _sizes(hidden, edges, grow) | ({} if quantile is None else {"quantile": quantile})  # fmt: skip
    task = _task(task, loss, class_weight)
    _model("classify" if class_weight else task, options, class_weight)._settings()  # refuses before a table is read
    request = FitRequest(
        data, target, task, drop, test, random_state, read, max_categories, on is not None, workers(on, scratch),
        scratch, shown=not as_json,
    )  # fmt: skip
    rows = (BlockRows if request.in_blocks() else TableRows)(request)
    if class_weight is not None and rows.task == "regress":
        raise MeshError("--class-weight: the target is a number, not classes; leave it out, or pass --task classify")
    model = _model(rows.task, options, class_weight)
    if not as_json:
        say_notes(rows.notes)
        print_lines(rows.introduction(), stderr=True)
    seconds, warned, code = _train(model, rows)
    model.set_params(verbose=0)
    model.target_ = target
    tested, trained = rows.parts()
    report = None if tested is None else _scored(model, *tested, target, warned)
    train_report = _scored(model, *trained, target, [])
    out, failure = save_somewhere(model, out)
    net, edge_count = model.mesh_, model.mesh_.topology.n_edges
    facts = {
        "data": str(data),
        "target": target,
        "task": rows.task,
        "features": rows.features(model),
        "classes": [str(label) for label in model.classes_] if hasattr(model, "classes_") else None,
        "test": None if report is None else report.to_dict(),
        "train": train_report.to_dict(),
        "edges": edge_count,
        "hidden": net.topology.n_hidden,
        "live_edges": edge_count - int(net.dead_edges().sum()),
        "ticks": net.ticks,
        "solver": model.solver_,
        "solver_reason": model.solver_reason_,
        "l2": model.l2_,
        "epochs": model.n_iter_,
        "loss": model.history_[-1].loss if len(model.history_) else None,
        "history_notes": model.history_.notes,
        "seconds": seconds,
        "notes": rows.notes + warned,
        "model": str(out),
    }
    if as_json:
        print_json(facts)
    else:
        say_notes(warned)
        _show(facts, report, train_report)
    if failure is not None:
        raise failure
    if code:
        raise Exit(code)


def _solvers(name: str, learning_rate: float | None) -> Any:
    """Return the solvers of a name, with this learning rate where they have one."""
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
    """Return the parameters `hidden` and `structure`."""
    from meshnn.training import structure

    size: Any = 16 if grow else "auto"
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
    """Return the graph or net of a file, for the parameter `mesh`."""
    if path is None:
        return None
    if path.suffix.lower() == ".mesh":
        from meshnn.loading import load_fitted

        found = load_fitted(path)
        return getattr(found, "mesh_", found)
    from meshnn.topology.files import check_topology, read_topology

    check_topology(path)
    return lambda n_inputs, n_outputs: read_topology(path, n_inputs, n_outputs)


def _task(task: Any, loss: str | None, class_weight: str | None) -> Any:
    """Return the task that the loss and class weights imply."""
    if loss is not None:
        from meshnn.losses import LOSSES

        meant = "classify" if LOSSES[known("--loss", loss, LOSSES)].classifies else "regress"
        if task not in ("auto", meant):
            raise MeshError(f"--loss {loss} is for --task {meant}; leave one of them out")
        task = meant
    if class_weight is not None and task == "regress":
        raise MeshError("--class-weight: there are no classes in a regression; leave it out")
    return task


def _model(task: str, options: dict[str, Any], class_weight: str | None) -> Any:
    from meshnn.estimators import MeshClassifier, MeshRegressor

    return MeshClassifier(**options, class_weight=class_weight) if task == "classify" else MeshRegressor(**options)


def _train(model: Any, rows: Any) -> tuple[float, list[str], int]:
    """Fit; return seconds, notes, and the exit code if training was interrupted, else 0."""
    from meshnn.training.signals import sigterm_interrupts

    notes: list[str] = []
    stopped: list[str] = []
    terminated: list[int] = []
    began, code = time.perf_counter(), 0
    with collect_warnings(notes):
        try:
            with sigterm_interrupts(terminated), rows.opened(model) as given:
                began = time.perf_counter()
                model.fit(*given)
        except (TrainingInterrupted, KeyboardInterrupt) as stop:
            code = 143 if terminated else 130
            if isinstance(stop, TrainingInterrupted):
                further = "" if stop.checkpoint is None else "; run the same command again to go on"
                stopped = [f"interrupted after epoch {stop.epoch}: the best weights so far are kept{further}"]
    if code and not len(getattr(model, "history_", ())):
        say_notes(["interrupted before the first epoch was done: nothing was learned, nothing is written"])
        raise Exit(code)
    encoder = getattr(model, "encoder_", None)
    notes = [] if encoder is None else [*encoder.noted(), *notes]
    return (
        time.perf_counter() - began,
        [note for note in dict.fromkeys(notes) if note not in rows.notes] + stopped,
        code,
    )


def _scored(model: Any, X: Any, y: Any, target: str, notes: list[str]) -> Report:
    """Score the model on some rows; a class may be in none of the training rows."""
    classes = getattr(model, "classes_", None)
    scores, example = Scores(classes), None
    with collect_warnings(notes):
        predicted = model.predict(X)
    if classes is None:
        truth = np.asarray(y, np.float64)
    else:
        place = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        truth = np.where(classes[place] == y, place, -1)
        example = y[truth < 0][0] if (truth < 0).any() else None
    scores.add(truth, predicted, example=example)
    report, remarks = scores.report(target)
    notes += remarks
    return report


def _show(facts: dict[str, Any], report: Report | None, trained: Report) -> None:
    name = trained.name.replace("R2", "R²")
    head = [] if report is None else [f"test {report}"]
    print_lines(*head, f"train {name} {trained.score:.4f} on {counted(trained.rows, 'row')}", bold=len(head) - 1)
    confusion, where = (trained.confusion, "training") if report is None else (report.confusion, "test")
    if confusion is not None:
        show_confusion(confusion, facts["classes"], f"{where} rows")
    sizes = f"{counted(facts['edges'], 'edge')} ({facts['live_edges']:,} live)"
    why = facts["solver_reason"]  # holds what a search has found
    print_lines(
        f"{sizes}, {counted(facts['hidden'], 'hidden neuron')}, {counted(facts['ticks'], 'tick')}",
        f"solver {facts['solver']} ({why}), {counted(facts['epochs'], 'epoch')}, {facts['seconds']:.2f} s",
        *(note for note in facts["history_notes"][-3:] if note.partition(": ")[2] not in why),
        f"model written to {facts['model']}",
    )
