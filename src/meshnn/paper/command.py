"""`meshnn reproduce`: the experiments of the paper."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markdown import Markdown
from typer import Argument, Option

from meshnn.arguments import known
from meshnn.cli.output import print_json, print_lines
from meshnn.errors import MeshError
from meshnn.progress import progress

Protocol = Literal["ours", "paper"]


def reproduce(
    name: Annotated[
        str, Argument(help="equivalence, synthetic, spirals-hidden, iris, images, connections, report or all.")
    ],
    out: Annotated[
        Path | None, Option("-o", "--out", help="Output folder. Default: results/paper, with --quick results/quick.")
    ] = None,
    trials: Annotated[int | None, Option(help="Number of trials. Default: as in the paper.", min=1)] = None,
    seed: Annotated[int, Option(help="Seed of data, splits and weights.", min=0, max=2**31)] = 0,
    jobs: Annotated[int | None, Option("-j", "--jobs", help="Parallel trials. Default: one per core.", min=1)] = None,
    protocol: Annotated[Protocol | None, Option(help="Default: ours; with `all`, both for fast experiments.")] = None,
    quick: Annotated[bool, Option("--quick", help="Run fewer trials, as a preview.")] = False,
    data: Annotated[Path | None, Option(help="Folder of the images. Default: $MESHNN_DATA or a download.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print the tables as JSON.")] = False,
) -> None:
    """Run the paper's experiments, and write tables and figures.

    Every trial is saved. A second run computes only missing trials.

    [bold]Examples[/bold]

      meshnn reproduce synthetic --quick

      meshnn reproduce images --data ~/mnist-and-fashion --jobs 4

      meshnn reproduce all --out results/paper
    """
    from meshnn.paper.experiment import TrialOptions, markdown
    from meshnn.paper.report import write_report
    from meshnn.paper.runner import EXPERIMENTS, run

    known("experiment", name, (*EXPERIMENTS, "report", "all"))
    jobs = jobs or os.cpu_count() or 1
    out = out or Path("results/quick" if quick else "results/paper")
    if out.exists() and not out.is_dir():
        raise MeshError(f"--out: {out} is a file; name a folder")
    chosen = [] if name == "report" else list(EXPERIMENTS) if name == "all" else [name]
    printed, failed = {}, []
    for one in chosen:
        # the other experiments include the paper's protocol as a column, or take hours
        both = protocol is None and name == "all" and one in ("synthetic", "iris")
        for way in ("ours", "paper") if both else (protocol or "ours",):
            options = TrialOptions(trials=trials or 0, seed=seed, protocol=way, quick=quick, data=data)
            try:
                with progress(one) as report:
                    outcome = run(EXPERIMENTS[one], options, out, jobs, report)
            except KeyboardInterrupt:
                print_lines("meshnn: interrupted; the same command resumes", stderr=True, style="red")
                raise typer.Exit(130) from None
            except MeshError as error:
                if name != "all":
                    raise
                failed.append(f"{one}: {error}")
                print_lines(f"meshnn: {one}: {error}", stderr=True, style="red")
                continue
            printed[outcome.folder.name] = [table._asdict() for table in outcome.tables]
            if not as_json:
                Console(width=None if sys.stdout.isatty() else 160).print(Markdown(markdown(outcome.tables)))
                files = f"{outcome.folder / 'results.json'}, table.md, {len(outcome.figures)} figures"
                print_lines(files, stderr=True)
    if as_json:
        print_json(printed)
    if name in ("report", "all") and (name == "report" or printed):
        path = write_report(out)
        typer.echo(f"report written to {path.resolve()}", err=as_json)
    if failed:
        raise typer.Exit(2)
