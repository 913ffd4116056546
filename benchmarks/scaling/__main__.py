"""`make study`: time and memory of a gradient, compared with PyTorch, JAX and MLPClassifier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from meshnn.arguments import known
from meshnn.cli.output import print_json
from meshnn.errors import MeshError
from meshnn.progress import progress

if TYPE_CHECKING:
    from scaling.study import Sweep

__all__ = ["scaling"]


def scaling(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of the results. Default: results/scaling, with --quick results/scaling-quick."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure few points, in less than two minutes.")] = False,
    only: Annotated[str | None, typer.Option("--only", help="Sweeps, separated by commas. Default: all.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Time limit per point. Default: 60, with --quick 10.")
    ] = None,
    memory: Annotated[float, typer.Option("--memory", help="Memory limit per point in GiB.")] = 8.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print all records as JSON.")] = False,
) -> None:
    """Measure time and memory of a gradient by neurons, edges, density, ticks, outputs and batch.

    Compares the methods of meshnn, the paper's tensor algorithm, PyTorch, JAX and MLPClassifier. Every point runs in a
    separate process with limits; exceeding a limit is a result. A second run only measures missing points.

    [bold]Examples[/bold]

      python -m scaling --quick

      python -m scaling --out results/scaling

      python -m scaling --only ticks,dense --seconds 30
    """
    from meshnn.plots.style import require_matplotlib
    from scaling.report import write_report
    from scaling.runner import Limits, missing_peers, run
    from scaling.study import CONTESTANTS, points_of, sweeps

    require_matplotlib()
    chosen = sweeps(quick)
    if only is not None:
        names = [known("sweep", name.strip(), [sweep.name for sweep in sweeps(False)]) for name in only.split(",")]
        if missing := [name for name in names if name not in [sweep.name for sweep in chosen]]:
            raise MeshError(f"--quick does not measure {', '.join(missing)}; leave it out")
        chosen = tuple(sweep for sweep in chosen if sweep.name in names)
    if not all(0 < limit < float("inf") for limit in (1.0 if seconds is None else seconds, memory)):
        raise MeshError("--seconds and --memory must be numbers greater than 0")
    out = out or Path("results/scaling-quick" if quick else "results/scaling")
    if out.exists() and not out.is_dir():
        raise MeshError(f"--out: {out} is a file; name a folder")
    points, console = points_of(chosen), Console(stderr=True)
    for name, how in missing_peers([point.contestant for point in points]).items():
        console.print(f"[bold red]NOT MEASURED: {escape(CONTESTANTS[name])}[/bold red]: {escape(how)}", soft_wrap=True)
    limits = Limits.of(seconds or (10.0 if quick else 60.0), memory)
    try:
        with progress("scaling") as report:
            records = run(points, out, limits, report)
    except KeyboardInterrupt:
        console.print("meshnn: interrupted; results are saved, run the same command to resume", style="red")
        raise typer.Exit(130) from None
    write_report(chosen, records, out)
    if as_json:
        print_json(records)
        return
    _show(chosen, records)
    print(f"{(out / 'report.md').resolve()}")


def _show(chosen: tuple[Sweep, ...], records: dict[str, Any]) -> None:
    from scaling.analysis import winners

    console = Console()
    for sweep in chosen:
        table = Table(title=sweep.title, title_justify="left")
        for heading in (sweep.axis, "fastest", "meshnn auto", "fastest peer", "peer / auto", "forward-only / backprop"):
            table.add_column(heading)
        for row in winners(sweep, records):
            table.add_row(*map(escape, row))
        console.print(table)


if __name__ == "__main__":
    typer.run(scaling)
