"""`meshnn fit`: train a model on a table, test it and save it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Exit, Option

from meshnn.arguments import known
from meshnn.cli import output
from meshnn.cli.options import Activation, AsJson, Drop, ModelOut, Seed, TaskOption, Ticks, size_list, with_read_options
from meshnn.cli.scores import ModelScores, Report, show_confusion
from meshnn.codes import ACTIVATIONS
from meshnn.errors import TrainingInterrupted

Solver = Literal["auto", "lm", "adam", "sgd"]
Balanced = Literal["balanced"]


@with_read_options
def fit(
    data: Annotated[
        Path,
        Argument(
            help="Training table: .csv, .tsv (also .gz), .parquet, .feather, or - for CSV from standard input. A "
            "folder of .parquet files, a .parquet file above 1 GiB and a .npy matrix are read in blocks (out-of-core)."
        ),
    ],
    target: Annotated[str, Option("--target", "-y", help="Column to predict. For a matrix X.npy: the file y.npy.")],
    hidden: Annotated[
        str | None,
        Option(
            "--hidden",
            "-n",
            help="Number of hidden neurons, or layer sizes such as 10,5. Default: 4 to 128, by the size of the table. "
            "Raise it if the training score is low; lower it if the test score is much below the training score.",
        ),
    ] = None,
    members: Annotated[
        int | None,
        Option(
            min=1,
            help="Number of networks whose mean predicts; every second one has piecewise-linear features of the "
            "columns. Default: 2, or 1 with options that describe the network, such as --hidden.",
        ),
    ] = None,
    mesh: Annotated[
        Path | None,
        Option(help="File with the graph to train (.json, .graphml, .npz) or with a network to continue from (.mesh)."),
    ] = None,
    task: TaskOption = "auto",
    test: Annotated[
        float, Option(min=0, max=1, help="Fraction of the rows held out for the test score. 0: train on all rows.")
    ] = 0.3,
    out: ModelOut = None,
    drop: Drop = None,
    max_categories: Annotated[
        int, Option(min=2, help="Maximum number of features per text column; the rarest levels share one feature.")
    ] = 100,
    solver: Annotated[
        Solver,
        Option(
            help="Training algorithm. auto: adam for classification, lm (Levenberg-Marquardt) for regression on small "
            "tables; where both are affordable, a search on held-out rows decides."
        ),
    ] = "auto",
    ticks: Ticks = None,
    activation: Activation = "auto",
    max_epochs: Annotated[
        int | None,
        Option(
            min=1,
            help="Maximum number of epochs, or of iterations of lm. Default: 4,000 steps (at least 15 epochs); 300 "
            "iterations. Raise it if a note reports that training stopped at this limit.",
        ),
    ] = None,
    learning_rate: Annotated[
        float | None, Option(help="Learning rate of adam and sgd. Default: 0.007. Lower it if the loss diverges.")
    ] = None,
    batch_size: Annotated[
        int | None,
        Option("--batch-size", "-b", min=1, help="Samples per step of adam and sgd. Default: 32 to 256, by the table."),
    ] = None,
    l1: Annotated[
        float, Option(min=0, help="L1 regularisation strength. A positive value sets unimportant weights to zero.")
    ] = 0.0,
    l2: Annotated[
        float | None,
        Option(
            min=0, help="L2 regularisation strength. Default: found by a search on held-out rows; a value skips it."
        ),
    ] = None,
    tol: Annotated[
        float, Option(min=0, help="Stop when the loss has not fallen by this much in 20 epochs. 0: never stop early.")
    ] = 1e-4,
    n_restarts: Annotated[
        int,
        Option(min=1, help="Number of random initialisations; the best fit is kept. Raise it if results vary by seed."),
    ] = 1,
    early_stopping: Annotated[
        bool,
        Option(
            "--early-stopping", help="Hold out a tenth of the training rows, and stop when their loss stops falling."
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None, Option(help="File that saves the training state. After an interruption, the same command resumes.")
    ] = None,
    edges: Annotated[
        int | None,
        Option(min=1, help="Prune the network to this number of edges during training. Default: no pruning."),
    ] = None,
    grow: Annotated[
        bool, Option("--grow", help="Start with 2 hidden neurons and add more, up to --hidden (default: 16).")
    ] = False,
    loss: Annotated[
        str | None,
        Option(
            help="Loss for regression: squared_error (default), huber for outliers, poisson for counts, quantile for "
            "--quantile."
        ),
    ] = None,
    quantile: Annotated[
        float | None,
        Option(
            min=0.001, max=0.999, help="With --loss quantile: fraction of the rows below the prediction. Default: 0.5."
        ),
    ] = None,
    class_weight: Annotated[
        Balanced | None, Option(help="balanced: all classes count equally. Use it if rare classes are missed.")
    ] = None,
    random_state: Seed = 0,
    n_jobs: Annotated[
        int | None, Option(help="Number of threads. Default: as many as speed up training; -1: all cores.")
    ] = None,
    scratch: Annotated[
        Path | None,
        Option(
            exists=True,
            file_okay=False,
            help="Folder for temporary files of out-of-core training. Default: MESHNN_SCRATCH, else TMPDIR. Name a "
            "disk with more space if that one is too small.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        Option(help="Train on Dask workers: dask:2 starts 2 processes, dask://host:8786 connects to a scheduler."),
    ] = None,
    read: Any = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on a table, test it on held-out rows and save it.

    Text columns are one-hot encoded, dates become year, month, weekday, hour and
    days, and missing values are filled with the median or the most frequent value.

    [bold]Examples[/bold]

      meshnn fit iris.csv --target species --out iris.mesh
      meshnn fit houses.parquet --target price --hidden 8 --test 0.2 --drop id,name
      meshnn fit verkauf.csv --target preis --sep ";" --decimal ,
      meshnn fit data.csv --target y --mesh graph.json --solver adam --max-epochs 1000
      meshnn fit data.csv --target y --hidden 30 --edges 200
      meshnn fit claims.csv --target count --loss poisson
      zcat big.csv.gz | meshnn fit - --target y --class-weight balanced
      meshnn fit measured/ --target y --scratch /mnt/large --checkpoint run.mesh --out y.mesh
      meshnn fit measured/ --target y --on dask:4
    """
    from meshnn.cli.fit_rows import FitRequest, workers
    from meshnn.training import Checkpoint

    known("--activation", activation, ["auto", *ACTIVATIONS])
    if out is None:
        stem = "model" if str(data) == "-" else data.resolve().name.partition(".")[0] or "model"
        out = output.free_name(Path(), Path(f"{stem}.mesh"))
    output.check_output("--out", out, ".mesh", {"the table": data})
    if checkpoint is not None:
        output.check_output("--checkpoint", checkpoint)
    output.refuse({
        f"--out and --checkpoint name the same file, {out}": checkpoint and checkpoint.resolve() == out.resolve(),
        "--mesh defines the number of hidden neurons; leave --hidden out": mesh and hidden is not None,
        "--members: --mesh, --edges and --grow train one network; leave --members out":
        (members or 1) > 1 and (mesh or edges or grow),
        "--grow builds its own network; leave --mesh out": mesh and grow,
        "--n-restarts: --edges and --grow allow one initialisation only; leave --n-restarts out":
        n_restarts > 1 and (edges or grow),
        "--quantile needs --loss quantile; add it, or leave --quantile out": quantile and loss != "quantile",
        "--learning-rate applies to adam and sgd, not to lm; leave it out":
        solver == "lm" and learning_rate is not None,
    })  # fmt: skip
    chosen = {"l2": l2, "batch_size": batch_size, "max_epochs": max_epochs, "quantile": quantile, "n_members": members}
    options = {name: value for name, value in chosen.items() if value is not None} | {
        "ticks": ticks, "activation": activation, "solver": _solvers(solver, learning_rate), "l1": l1, "tol": tol,
        "n_restarts": n_restarts, "early_stopping": early_stopping, "max_categories": max_categories, "loss": loss,
        "mesh": _prototype(mesh), "callbacks": None if checkpoint is None else Checkpoint(checkpoint),
        "n_jobs": n_jobs, "random_state": random_state, "verbose": 0 if as_json else 1,
    } | _sizes(hidden, edges, grow)  # fmt: skip
    task = _task(task, loss)
    first = "classify" if class_weight and task == "auto" else task
    _model(first, options, class_weight)._settings()  # refuses invalid options before the table is read
    cluster = None if on is None else workers(on, scratch)
    shown = not as_json
    rows = FitRequest(
        data, target, task, drop, test, random_state, read, max_categories, cluster, scratch, shown
    ).rows()
    model = _model(rows.task, options, class_weight)
    if shown:
        output.say_notes(rows.notes)
        output.print_lines(rows.introduction, stderr=True)
    seconds, warned, code = _train(model, rows)
    model.set_params(verbose=0)
    model.target_ = target
    report = None if rows.held is None else _scored(model, *rows.held, target, warned)
    train_report = _scored(model, *rows.sample, target, [])
    out, failure = output.save_somewhere(model, out)
    net, edge_count = model.mesh_, model.mesh_.topology.n_edges
    history = model.history_
    facts = {
        "data": str(data), "target": target, "task": rows.task,
        "features": list(model.preprocessing_.feature_names) or None,
        "classes": [str(label) for label in model.classes_] if hasattr(model, "classes_") else None,
        "test": None if report is None else report.to_dict(), "train": train_report.to_dict(),
        "edges": edge_count, "hidden": net.topology.n_hidden, "live_edges": edge_count - int(net.dead_edges().sum()),
        "ticks": net.ticks, "solver": model.solver_, "solver_reason": model.solver_reason_, "l2": model.l2_,
        "epochs": model.n_iter_, "loss": history[-1].loss if len(history) else None, "history_notes": history.notes,
        "seconds": seconds, "notes": rows.notes + warned, "model": str(out),
    }  # fmt: skip
    if as_json:
        output.print_json(facts)
    else:
        output.say_notes(warned)
        _show(facts, report, train_report)
    if failure is not None:
        raise failure
    if code:
        raise Exit(code)


def _solvers(name: str, learning_rate: float | None) -> Any:
    """Return the candidate solvers of a name, with this learning rate if they have one."""
    from meshnn.training.solvers import candidates

    if learning_rate is None:
        return name
    found = list(candidates(name))
    for solver in found:
        if "learning_rate" in solver.get_params():
            solver.set_params(learning_rate=learning_rate)
    return found if len(found) > 1 else found[0]


def _sizes(hidden: str | None, edges: int | None, grow: bool) -> dict[str, Any]:
    """Return the parameters `hidden` and `structure`."""
    from meshnn.training.structure import Grow, Prune

    size: Any = 16 if grow else "auto"
    if hidden is not None:
        sizes = size_list("--hidden", hidden)
        size = sizes[0] if len(sizes) == 1 else tuple(sizes)
    if not grow:
        return {"hidden": size, "structure": None if edges is None else Prune(to=edges)}
    output.refuse({"--grow does not build layers; pass one number to --hidden": isinstance(size, tuple)})
    prune = [] if edges is None else [Prune(to=edges, start="given", begin=0.5, end=0.9)]
    return {"hidden": min(2, size), "structure": [Grow(to=max(size, 1)), *prune]}


def _prototype(path: Path | None) -> Any:
    """Return the graph or network of a file as a value of the parameter `mesh`."""
    if path is None:
        return None
    if path.suffix.lower() == ".mesh":
        from meshnn.loading import load_fitted

        found = load_fitted(path)
        return getattr(found, "mesh_", found)
    from meshnn.topology.files import check_topology, read_topology

    check_topology(path)
    return lambda n_inputs, n_outputs: read_topology(path, n_inputs, n_outputs)


def _task(task: Any, loss: str | None) -> Any:
    """Return the task that the loss implies."""
    from meshnn.losses import LOSSES

    if loss is not None:
        meant = "classify" if LOSSES[known("--loss", loss, LOSSES)].classifies else "regress"
        output.refuse(
            {
                f"--loss {loss} needs --task {meant}, got {task}; leave one of the two options out": task
                not in ("auto", meant)
            }
        )
        task = meant
    return task


def _model(task: str, options: dict[str, Any], class_weight: str | None) -> Any:
    from meshnn.estimators import MeshClassifier, MeshRegressor

    if task == "classify":
        return MeshClassifier(**options, class_weight=class_weight)
    output.refuse({"--class-weight needs a target with classes; leave it out, or pass --task classify": class_weight})
    return MeshRegressor(**options)


def _train(model: Any, rows: Any) -> tuple[float, list[str], int]:
    """Fit the model. Return the seconds, the notes and the exit code: 130 or 143 if interrupted, else 0."""
    from meshnn.training.signals import sigterm_interrupts

    notes: list[str] = []
    terminated: list[int] = []
    stop: KeyboardInterrupt | None = None
    with output.collect_warnings(notes):
        try:
            with sigterm_interrupts(terminated), rows.opened(model) as given:
                began = time.perf_counter()
                model.fit(*given)
        except KeyboardInterrupt as error:
            stop = error
    code = 0 if stop is None else 143 if terminated else 130
    if code and not len(getattr(model, "history_", ())):
        output.say_notes(["interrupted before the first epoch ended: no model was written"])
        raise Exit(code)
    encoder = getattr(model, "encoder_", None)
    found = dict.fromkeys(notes if encoder is None else [*encoder.noted(), *notes])
    notes = [note for note in found if note not in rows.notes]
    if isinstance(stop, TrainingInterrupted):
        further = "" if stop.checkpoint is None else "; run the same command again to resume"
        notes.append(f"interrupted after epoch {stop.epoch}: the best weights so far are kept{further}")
    return time.perf_counter() - began, notes, code


def _scored(model: Any, X: Any, y: Any, target: str, notes: list[str]) -> Report:
    """Score the model on rows, which may contain classes without a training row."""
    import pyarrow as pa

    from meshnn.tables.cells import cells_of

    scores = ModelScores(getattr(model, "classes_", None))
    with output.collect_warnings(notes):
        scores.add(cells_of(pa.table({target: y}), target), model.predict(X))
    report, remarks = scores.report(target)
    notes += remarks
    return report


def _show(facts: dict[str, Any], report: Report | None, trained: Report) -> None:
    name = trained.name.replace("R2", "R²")
    head = [] if report is None else [f"test {report}"]
    output.print_lines(
        *head, f"train {name} {trained.score:.4f} on {output.counted(trained.rows, 'row')}", bold=len(head) - 1
    )
    confusion, where = (trained.confusion, "training") if report is None else (report.confusion, "test")
    if confusion is not None:
        show_confusion(confusion, facts["classes"], f"{where} rows")
    sizes = f"{output.counted(facts['edges'], 'edge')} ({facts['live_edges']:,} live)"
    why = facts["solver_reason"]  # includes the result of the search, which the notes repeat
    output.print_lines(
        f"{sizes}, {output.counted(facts['hidden'], 'hidden neuron')}, {output.counted(facts['ticks'], 'tick')}",
        f"solver {facts['solver']} ({why}), {output.counted(facts['epochs'], 'epoch')}, {facts['seconds']:.2f} s",
        *(note for note in facts["history_notes"][-3:] if note.partition(": ")[2] not in why),
        f"model written to {facts['model']}",
    )
