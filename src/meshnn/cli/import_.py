"""`meshnn import`: what a learner in C has learned, back in a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from meshnn.cli.options import AsJson
from meshnn.cli.output import check_output, counted, print_json


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
