"""`meshnn fit` on rows that are not in memory: read block by block, once, and learned from a disk or by a cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from meshnn.cli.fit_options import check_class_weight, graph_of
from meshnn.cli.fit_rows import Place, Seen, open_table, rows_to_fit, workers_of
from meshnn.cli.fit_run import INTERRUPTED, TERMINATED, new_model, nothing_learned, tell, train
from meshnn.cli.output import counted, say_notes
from meshnn.cli.report import Report, score_classes, score_model
from meshnn.errors import DataError, MeshError
from meshnn.tables.reader import in_blocks
from meshnn.tables.sources import NpySource, ParquetSource, RowBlock, Source

__all__ = ["Wanted", "fit_far", "is_far"]

#: Rows that tell classes from numbers.
LOOKED_AT = 100_000


@dataclass(frozen=True)
class Wanted:
    """What is asked for, besides what estimators know."""

    target: str
    task: str
    drop: list[str]
    share: float  # of the rows to test on
    seed: int
    class_weight: str | None
    topology: Path | None
    out: Path | None
    as_json: bool
    place: Place


def is_far(data: Path, place: Place) -> bool:
    """Whether a table is read block by block."""
    return place.is_cluster or (data.suffix.lower() == ".npy" and data.exists()) or in_blocks(data)


def fit_far(data: Path, wanted: Wanted, options: dict[str, Any]) -> None:
    """Learn, test and save."""
    from meshnn.progress import reading
    from meshnn.tables.holdout import HoldoutSplit
    from meshnn.training.signals import sigterm_interrupts

    _check_target(data, wanted)
    source = open_table(data, wanted.target, wanted.drop, wanted.place)
    task, notes = _task(source, wanted)
    check_class_weight(wanted.class_weight, task)
    if task == "classify":
        options["class_weight"] = wanted.class_weight
    model = new_model(task, options)
    width = source.n_features if isinstance(source, NpySource) else len(source.columns or ())
    split = HoldoutSplit.for_report(source.n_rows or 0, wanted.share, wanted.seed, width)
    seen, terminated = Seen(), list[int]()
    try:
        with (
            sigterm_interrupts(terminated),
            workers_of(wanted.place) as client,
        ):
            if not wanted.as_json:
                say_notes(notes)
                _introduce(source, task, split, width)
            with (
                reading(0 if wanted.as_json else 1, split.n - len(split.held)) as told,
                rows_to_fit(source, split, model, wanted.place, client, told, seen) as rows,
            ):
                told.close()
                n_outputs = len(rows.labels) if task == "classify" else 1
                names = source.columns or [f"feature {k}" for k in range(width)]
                model.set_params(mesh=graph_of(wanted.topology, width, n_outputs, names))
                seconds, warned, code = train(lambda: model.fit(rows), terminated)
    except KeyboardInterrupt:
        raise nothing_learned(TERMINATED if terminated else INTERRUPTED, "before training began") from None
    except DataError as error:
        raise DataError(_in_our_words(str(error))) from None
    model.set_params(verbose=0)
    if code and len(model.history_) == 0:
        raise nothing_learned(code)
    if isinstance(source, ParquetSource):
        _remember_columns(model, source, wanted)
    assert seen.sample is not None
    report = None
    if seen.held is not None and len(seen.held.X):
        report = _scored(model, task, seen.held, wanted.seed, warned)
    trained = _scored(model, task, seen.sample, wanted.seed, [])
    facts = {"data": str(data), "target": wanted.target, "task": task, "features": source.columns}
    tell(model, facts, report, trained, seconds, notes, warned, wanted.out, wanted.as_json, code)


def _check_target(data: Path, wanted: Wanted) -> None:
    """Do not learn for hours and then write over the table."""
    out = wanted.out
    if out is not None and out.exists() and data.exists() and out.samefile(data):
        raise MeshError(f"--out: {out} is the table, which would be lost; name another file")


def _task(source: Source, wanted: Wanted) -> tuple[str, list[str]]:
    """Classes or numbers, and why."""
    from meshnn.tables.names import check_names
    from meshnn.tables.target import target_task

    if isinstance(source, ParquetSource):
        check_names(source.schema.names, [wanted.target, *wanted.drop], f"{source.name}: ")
        return target_task(source.table.few(wanted.target, LOOKED_AT), wanted.target, wanted.task)
    import pyarrow as pa

    assert isinstance(source, NpySource)
    few = source.few_targets(LOOKED_AT)
    return target_task(pa.table({wanted.target: few}), wanted.target, wanted.task)


def _introduce(source: Source, task: str, split: Any, width: int) -> None:
    files = f" in {source.table}" if isinstance(source, ParquetSource) else ""
    what = "classes" if task == "classify" else "a number"
    text = (
        f"{os.path.basename(os.path.normpath(source.name))}: {counted(split.n, 'row')}{files}, "
        f"{counted(width, 'feature')}, to predict {what}, read block by block; "
        f"{counted(split.n - len(split.held), 'row')} to learn from, {len(split.held):,} to test on"
    )
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


def _remember_columns(model: Any, source: ParquetSource, wanted: Wanted) -> None:
    """Let the model find its columns in tables, as one does that was learned from memory."""
    from meshnn.tables.encoder import Column, Encoder

    kinds = {name: "boolean" if str(source.schema.field(name).type) == "bool" else "numeric" for name in source.columns}
    columns = tuple(Column(name, kind) for name, kind in kinds.items())
    left_out = dict.fromkeys(wanted.drop, "dropped on request")
    # features are handed in as the encoder makes them, so their names are its own
    encoder = Encoder(columns, False, left_out)
    model.preprocessing_ = replace(model.preprocessing_, names=None, encoder=encoder)
    model.target_ = wanted.target


def _scored(model: Any, task: str, rows: RowBlock, seed: int, notes: list[str]) -> Report:
    """How good the model is on some rows; rows are drawn, so that some class may be in none that was learned from."""
    if task != "classify":
        return score_model(model, task, rows.X, rows.y.astype(np.float64), seed)
    place = np.minimum(np.searchsorted(model.classes_, rows.y), len(model.classes_) - 1)
    truth = np.where(model.classes_[place] == rows.y, place, -1)
    if strange := int((truth < 0).sum()):
        example = str(rows.y[truth < 0][0])[:60]
        notes.append(f"{counted(strange, 'row')} of classes that were not learned, as {example!r}: counted as wrong")
    return score_classes(model.classes_, truth, model.predict(rows.X))


def _in_our_words(text: str) -> str:
    """Advice for Python in the words of the command line."""
    words = {
        "y holds": "the target holds",
        "for amounts take MeshRegressor": "for amounts pass --task regress",
        "for labels take MeshClassifier": "for labels pass --task classify",
        "early_stopping holds out": "--early-stopping holds out",
        "; fit from memory": "; leave it out",
    }
    for before, now in words.items():
        text = text.replace(before, now)
    return text
