"""`meshnn export`: a trained model as a file that needs no Python."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from meshnn.cli.output import check_output, print_json, say_notes
from meshnn.errors import MeshError

__all__ = ["export"]

#: Predictions that `--check` compares, and how far those in floats may be apart, as a share of the largest output.
CHECKED, APART = 1000, 1e-4


class Form(StrEnum):
    """What can be written."""

    c = "c"
    onnx = "onnx"


class Dtype(StrEnum):
    """Of weights and states in C."""

    float32 = "float32"
    int8 = "int8"
    int16 = "int16"


class Optimize(StrEnum):
    """What C is made for."""

    size = "size"
    speed = "speed"


def export(
    model: Annotated[
        Path, typer.Argument(help="A model: of `meshnn fit`, `meshnn stream` or `save`.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write: net.h or net.onnx.", show_default=False)],
    to: Annotated[
        Form | None, typer.Option("--to", help="What to write; by default what the name of the file says.")
    ] = None,
    dtype: Annotated[
        Dtype, typer.Option("--dtype", help="C: numbers of the net; whole ones need no floating point.")
    ] = Dtype.float32,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="The training table: integer nets choose their scales on it, and accuracy is told."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-y", help="Its column with the true answers; by default as in training.")
    ] = None,
    optimize: Annotated[
        Optimize, typer.Option("--optimize", help="C: small tables and loops, or fast code without loops.")
    ] = Optimize.size,
    name: Annotated[
        str | None, typer.Option("--name", help="C: what all names begin with; by default the name of the file.")
    ] = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="C: with the learner of a stream, so that it goes on learning on the chip.")
    ] = False,
    tune: Annotated[
        bool, typer.Option("--tune/--no-tune", help="C: let integer weights learn once more, through their rounding.")
    ] = True,
    check: Annotated[
        bool, typer.Option("--check", help=f"Compile or load what was written, and compare {CHECKED} predictions.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a model as a C header for chips, or as ONNX.

    [bold]Examples[/bold]

      meshnn export iris.mesh --out iris.h --check

      meshnn export iris.mesh --out iris.h --dtype int8 --data iris.csv --check

      meshnn export stream.mesh --out net.h --learn

      meshnn export iris.mesh --out iris.onnx
    """
    form = _form(to, out)
    check_output("--out", out)
    if out.exists() and model.exists() and out.samefile(model):
        raise MeshError(f"--out: {out} is the model, which would be lost; name another file")
    given = {"--dtype": dtype != Dtype.float32, "--optimize": optimize != Optimize.size, "--name": name is not None}
    if form == Form.onnx or learn:
        _refuse(given | {"--learn": learn and form == Form.onnx, "--data": data is not None}, form, learn)
    if target is not None and data is None:
        raise MeshError("--target is a column of --data, which is not there; pass both, or none")
    if not tune and dtype == Dtype.float32:
        raise MeshError("--no-tune is for int8 and int16; pass --dtype, or leave it out")
    from meshnn.loading import load_fitted

    thing = load_fitted(model)
    X, y, notes = (None, None, []) if data is None else _samples(model, thing, data, target)
    say_notes(notes)
    if form == Form.onnx:
        facts = _write_onnx(thing, out)
    else:
        options = {"dtype": dtype.value, "optimize": optimize.value, "name": name, "tune": tune, "learn": learn}
        report = thing.to_c(out, X=X, y=y, **options)
        facts = asdict(report) | {"shown": str(report)}
        net = facts.pop("net")
        facts["net"] = report.net if net is not None else None
    if check:
        facts["check"] = _checked(thing, form, out, X, facts.get("net"), learn)
        facts["shown"] += f"\n  {facts['check']}"
    facts.pop("net", None)
    shown = facts.pop("shown")
    if as_json:
        print_json(facts)
    else:
        print(shown, file=sys.stdout)


def _form(to: Form | None, out: Path) -> Form:
    if to is not None:
        return to
    found = {".h": Form.c, ".hpp": Form.c, ".onnx": Form.onnx}.get(out.suffix.lower())
    if found is None:
        raise MeshError(f"--out: {out} does not say what to write; end it in .h or .onnx, or pass --to c or --to onnx")
    return found


def _refuse(given: dict[str, bool], form: Form, learn: bool) -> None:
    """Options that mean nothing here."""
    for option, there in given.items():
        if there and not (learn and option == "--name"):
            what = "ONNX" if form == Form.onnx else "a learner, which is in float32 and needs no samples"
            raise MeshError(f"{option} is not for {what}; leave it out")


def _samples(path: Path, thing: Any, data: Path, target: str | None) -> tuple[Any, Any, list[str]]:
    """Features of the table, and true answers if it has them."""
    from meshnn.cli.tables import ModelTables, load_model, read_options

    estimator = load_model(path)
    tables = ModelTables(estimator, data, read_options(None, ".", None, "utf-8", None), target, shown=False)
    if tables.target is None or tables.target not in tables.names:
        if target is not None:
            raise MeshError(f"--target: the table has no column {target!r}")
        return np.concatenate([tables.features(table) for table in tables]), None, tables.notes
    X, y, lost = list[Any](), list[Any](), 0
    for table in tables:
        if hasattr(estimator, "classes_"):
            labels = tables.labels(table)
            assert labels is not None
            there = labels >= 0
            y += [_plain(estimator.classes_[k]) for k in labels[there]]
        else:
            values = tables.values(table)
            there = np.isfinite(values)
            y += values[there].tolist()
        X.append(tables.features(table)[there])
        lost += int((~there).sum())
    if not y:
        raise MeshError(f"{data} has no row with a true answer that the model knows")
    notes = [f"{lost:,} rows have no answer that the model knows: left out"] * bool(lost)
    return np.concatenate(X), y, tables.notes + notes


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _write_onnx(thing: Any, out: Path) -> dict[str, Any]:
    thing.to_onnx(out)
    size = out.stat().st_size
    return {"path": str(out), "bytes": size, "shown": f"{out}: ONNX, {size:,} bytes"}


# -- checks ------------------------------------------------------------------------------------------------------------


def _checked(thing: Any, form: Form, out: Path, X: Any, net: Any, learn: bool) -> str:
    """Run what was written, and say in a sentence how it did; an error if it is not what the model is."""
    blueprint = thing.blueprint()
    samples = _drawn(blueprint) if X is None else np.asarray(X, np.float64)[np.arange(CHECKED) % len(X)]
    if form == Form.onnx:
        return _checked_onnx(thing, out, samples)
    if learn:
        return _checked_learner(thing, out, samples)
    from meshnn.export import CNet
    from meshnn.export.c.reference import float_outputs
    from meshnn.export.scoring import as_rows, predicted

    compiled, rows = CNet(out), as_rows(blueprint, samples)
    plain = hasattr(thing, "_outputs") and blueprint.timing is None and not callable(getattr(thing, "learn_one", None))
    wanted = thing._outputs(samples) if plain else float_outputs(blueprint, samples)
    if net is None:
        got = compiled.outputs(rows)
        apart = float(np.abs(got - wanted).max()) / (float(np.abs(wanted).max()) or 1.0)
        if not apart <= APART:
            raise MeshError(f"--check: outputs of the compiled header are up to {apart:.2g} of the largest apart")
        return (
            f"checked: {len(samples):,} predictions of the compiled header agree to {apart:.1g} of the largest output"
        )
    coded = samples if net.coding.whole else compiled.quantise(rows)
    got = compiled.outputs(coded)
    if not np.array_equal(got, net.outputs(net.coding(samples))):
        raise MeshError("--check: the compiled header has other bits than the same net in Python")
    if blueprint.classes:
        same = float((predicted(blueprint, got * net.out_scale) == predicted(blueprint, wanted)).mean())
        return f"checked: {len(samples):,} predictions have the bits of Python; {same:.1%} as the net in floats says"
    error = float(np.sqrt(np.mean(np.square(got * net.out_scale - wanted)))) / (float(wanted.std()) or 1.0)
    bits = f"checked: {len(samples):,} predictions have the bits of Python"
    return f"{bits}; {error:.2%} of their spread off those in floats"


def _checked_learner(thing: Any, out: Path, samples: Any) -> str:
    """It learns made-up targets, here and in C."""
    from meshnn.export import CLearner

    learner, stream = CLearner(out), thing._learner()
    rng = np.random.default_rng(1)
    labels = max(len(getattr(thing, "classes_", ())), 2)
    targets = rng.integers(0, labels, (len(samples), 1))
    got, want = learner.run(samples, targets), stream.run(samples, targets)
    if not np.array_equal(got.view(np.uint32), want.view(np.uint32)):
        raise MeshError("--check: the compiled learner has other bits than the same stream in Python")
    return f"checked: {len(samples):,} samples learned with the bits of Python; {learner.ram_bytes:,} bytes of RAM"


def _drawn(blueprint: Any) -> Any:
    """Samples as if features were normal."""
    from meshnn.export.scoring import as_features, as_rows

    z = np.random.default_rng(0).standard_normal((CHECKED, blueprint.n_inputs))
    if blueprint.x_mean is not None:
        z = z * np.where(np.isfinite(blueprint.x_scale), blueprint.x_scale, 1.0) + blueprint.x_mean
    return as_features(blueprint, as_rows(blueprint, z))


def _checked_onnx(thing: Any, out: Path, samples: Any) -> str:
    """Of nets that live in time the first step, from a state of zeros."""
    try:
        import onnxruntime
    except ImportError:
        raise MeshError("--check: onnxruntime is not installed; pip install onnxruntime brings it") from None
    from meshnn.export.c.reference import float_outputs
    from meshnn.export.scoring import as_rows

    blueprint = thing.blueprint()
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    given = {}
    if any(column.categories for column in blueprint.columns):
        for value, column, cells in zip(inputs, blueprint.columns, as_rows(blueprint, samples).T, strict=True):
            texts = np.array([*column.categories, "never seen"], object)
            given[value.name] = (texts[cells.astype(int)] if column.categories else cells.astype(np.float32))[:, None]
    else:
        given[inputs[0].name] = samples.astype(np.float32)
        for other in inputs[1:]:
            given[other.name] = np.zeros((len(samples), int(other.shape[1])), np.float32)
    answers = dict(zip([output.name for output in session.get_outputs()], session.run(None, given), strict=True))
    if blueprint.timing is None:
        outputs = float_outputs(blueprint, samples)
    else:
        outputs = np.concatenate([float_outputs(blueprint, row[None]) for row in samples])
    apart = _apart_of(blueprint, answers, outputs)
    if not apart <= APART:
        raise MeshError(f"--check: what onnxruntime answers is up to {apart:.2g} apart")
    return f"checked: {len(samples):,} predictions of onnxruntime agree to {apart:.1g}"


def _apart_of(blueprint: Any, answers: dict[str, Any], outputs: Any) -> float:
    """The largest difference of probabilities, or of values as a share of the largest."""
    from meshnn.export.scoring import predicted, probabilities

    shares = next((found for name, found in answers.items() if "probabilit" in name), None)
    if shares is not None:
        rows = [list(row.values()) for row in shares] if isinstance(shares, list) else shares
        return float(np.abs(np.asarray(rows) - probabilities(blueprint, outputs)).max())
    wanted = predicted(blueprint, outputs) if blueprint.values else outputs
    found = np.asarray(next(iter(answers.values()))).reshape(wanted.shape)
    return float(np.abs(found - wanted).max() / (np.abs(wanted).max() or 1.0))
