"""`meshnn export` and `meshnn import`: a trained model as a file that needs no Python, and what it learned there."""

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
    out: Annotated[Path, Option("--out", "-o", help="The file to write: net.h or net.onnx.")],
    to: Annotated[str | None, Option(help="Format of the file, c or onnx; by default that of its ending.")] = None,
    dtype: Annotated[Dtype, Option(help="C: type of the numbers; integers need no floating point.")] = "float32",
    data: Annotated[Path | None, Option(help="The training table, for scales and scores of integer nets.")] = None,
    target: TrueAnswers = None,
    optimize: Annotated[Optimize, Option(help="C: small tables and loops, or fast code without loops.")] = "size",
    name: Annotated[str | None, Option(help="C: prefix of all names; by default the name of the file.")] = None,
    learn: Annotated[bool, Option("--learn", help="C: include the learner of a stream, to learn on the chip.")] = False,
    tune: Annotated[bool, Option("--tune/--no-tune", help="C: fine-tune integer weights by quantised runs.")] = True,
    check: Annotated[bool, Option("--check", help="Compile or load the file, and compare 1000 predictions.")] = False,
    read: Any = None,
    as_json: AsJson = False,
) -> None:
    """Write a model as a C header for chips, or as ONNX.

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
        raise MeshError(f"--out: {out} does not say what to write; end it in .h or .onnx, or pass --to c or --to onnx")
    check_output("--out", out, keep={"the model": model})
    given = {"--dtype": dtype != "float32", "--optimize": optimize != "size", "--data": data is not None}
    of_c = given | {"--name": name is not None, "--learn": learn}
    for_c = {f"{option} is not for {form}; leave it out": form != "c" and there for option, there in of_c.items()}
    fixed = {f"{option} is not for a learner, in float32; leave it out": learn and given[option] for option in given}
    refuse(for_c | fixed | {
        "--target is a column of --data, which is not there; pass both, or none": target is not None and data is None,
        "--no-tune is for int8 and int16; pass --dtype, or leave it out": not tune and dtype == "float32",
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
    saved: Annotated[Path, Argument(help="The file with the bytes that net_save wrote.")],
    into: Annotated[Path, Option(help="The .mesh file that the header was made from.")],
    out: Annotated[Path, Option("--out", "-o", help="The model to write, a .mesh file.")],
    as_json: AsJson = False,
) -> None:
    """Take back what a net has learned on a device: the bytes that its C learner saved.

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
    seen = f"{counted(snapshot.samples, 'sample')} seen, {counted(snapshot.learned, 'update')} of {snapshot.learner}"
    print(f"{out}: {counted(snapshot.n_parameters, 'parameter')} of {saved}; {seen}")
