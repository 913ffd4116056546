"""`meshnn export` and `meshnn import`: write a model for use without Python, and read a state trained there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from typer import Argument, Option

from meshnn.cli.options import AsJson, MeshFile, TrueAnswers, with_read_options
from meshnn.cli.output import check_output, counted, print_json, refuse
from meshnn.errors import MeshError

Dtype = Literal["float32", "int8", "int16"]
Optimize = Literal["size", "speed"]


@with_read_options
def export(
    model: MeshFile,
    out: Annotated[Path, Option("--out", "-o", help="File to write, for example net.h (C) or net.onnx.")],
    to: Annotated[str | None, Option(help="Format, c or onnx. Default: by the ending of --out.")] = None,
    dtype: Annotated[
        Dtype,
        Option(help="C: number type. int8 and int16 need no floating-point unit; int16 is more accurate."),
    ] = "float32",
    data: Annotated[
        Path | None, Option(help="C: training table, to calibrate an integer network and to report its accuracy.")
    ] = None,
    target: TrueAnswers = None,
    optimize: Annotated[
        Optimize, Option(help="C: size for small code (loops over tables), speed for unrolled code.")
    ] = "size",
    name: Annotated[str | None, Option(help="C: prefix of all identifiers. Default: the name of the file.")] = None,
    learn: Annotated[
        bool,
        Option("--learn", help="C: include a learner, so that the device continues training."),
    ] = False,
    tune: Annotated[
        bool,
        Option("--tune/--no-tune", help="C: fine-tune integer weights with quantisation in the loop. Needs --data."),
    ] = True,
    check: Annotated[
        bool, Option("--check", help="Compile or load the file, and compare 1000 of its predictions with the model.")
    ] = False,
    read: Any = None,
    as_json: AsJson = False,
) -> None:
    """Export a model as a C header for microcontrollers, or as ONNX.

    [bold]Examples[/bold]

      meshnn export iris.mesh --out iris.h --check
      meshnn export iris.mesh --out iris.h --dtype int8 --data iris.csv --check
      meshnn export stream.mesh --out net.h --learn
      meshnn export iris.mesh --out iris.onnx
    """
    from meshnn.export.blueprint import Exports

    ending = out.suffix.lower().removeprefix(".")
    form = to or {"h": "c", "hpp": "c"}.get(ending, ending)
    if not hasattr(Exports, f"to_{form}"):
        raise MeshError(f"--out: the ending of {out} is no known format; use .h or .onnx, or pass --to c or --to onnx")
    check_output("--out", out, keep={"the model": model})
    given = {"--dtype": dtype != "float32", "--optimize": optimize != "size", "--data": data is not None}
    of_c = given | {"--name": name is not None, "--learn": learn}
    for_c = {
        f"{option} does not apply to {form}; leave it out": form != "c" and there for option, there in of_c.items()
    }
    fixed = {
        f"{option} does not apply with --learn, which uses float32; leave it out": learn and given[option]
        for option in given
    }
    refuse(for_c | fixed | {
        "--target names a column of --data; pass --data as well, or leave --target out":
        target is not None and data is None,
        "--no-tune needs --dtype int8 or int16; pass one of them, or leave --no-tune out":
        not tune and dtype == "float32",
    })  # fmt: skip
    from meshnn.loading import load_fitted

    thing = load_fitted(model)
    X, y = (None, None) if data is None else _samples(model, data, target, read)
    net = None
    if form != "c":
        getattr(thing, f"to_{form}")(out)
        size = out.stat().st_size
        facts, shown = {"path": str(out), "bytes": size}, f"{out}: {form.upper()}, {size:,} bytes"
    else:
        report = thing.to_c(out, X=X, y=y, dtype=dtype, optimize=optimize, name=name, tune=tune, learn=learn)
        facts, shown, net = asdict(report), str(report), report.net
        del facts["net"]
    if check:
        facts["check"] = _check(thing, form, out, X, net, learn)
        shown += f"\n  {facts['check']}"
    if as_json:
        print_json(facts)
    else:
        print(shown)


def _samples(path: Path, data: Path, target: str | None, read: Any) -> tuple[Any, Any]:
    from meshnn.cli.models import ModelTables, load_model

    return ModelTables(load_model(path), data, read, target, shown=False).samples(target)


def _check(model: Any, form: str, out: Path, X: Any, net: Any, learn: bool) -> str:
    from meshnn.export import check

    n = 1000
    samples = check.random_samples(model.blueprint(), n) if X is None else np.asarray(X, float)[np.arange(n) % len(X)]
    if form != "c":
        return str(getattr(check, f"check_{form}")(model, out, samples))
    return check.check_learner(model, out, samples) if learn else check.check_c(model, out, samples, net)


def import_(
    saved: Annotated[Path, Argument(help="File with the bytes that the C function net_save wrote.")],
    into: Annotated[Path, Option(help="The .mesh file that the C header was exported from.")],
    out: Annotated[Path, Option("--out", "-o", help="File for the model, ending in .mesh.")],
    as_json: AsJson = False,
) -> None:
    """Import the state of a model that a C learner trained on a device.

    [bold]Example[/bold]

      meshnn import field.bin --into pump.mesh --out learned.mesh
    """
    from meshnn.export.snapshot import import_snapshot
    from meshnn.files import explained
    from meshnn.loading import load

    check_output("--out", out)
    model = load(into)
    with explained("read", str(saved)):
        content = saved.read_bytes()
    snapshot = import_snapshot(content, model, str(saved))
    model.save(out)
    if as_json:
        names = ("samples", "learned", "learner", "everything")
        facts = {"model": str(out), "parameters": snapshot.n_parameters}
        print_json(facts | {name: getattr(snapshot, name) for name in names})
        return
    seen = f"{counted(snapshot.samples, 'sample')} seen, {counted(snapshot.learned, 'update')} by {snapshot.learner}"
    print(f"{out}: {counted(snapshot.n_parameters, 'parameter')} from {saved}; {seen}")
