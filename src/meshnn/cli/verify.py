"""`meshnn verify`: run the numerical test of the paper on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from typer import Exit, Option

from meshnn.cli.options import AsJson, Seed
from meshnn.cli.output import check_output, print_json, print_lines, versions
from meshnn.files import explained, finite
from meshnn.progress import progress
from meshnn.verify import TOLERANCE, ErrorInterval, VerifyReport
from meshnn.verify import verify as run

PaperActivation = Literal["relu", "tanh"]
Reference = Literal["torch", "numpy"]


def verify(
    tests: Annotated[int, Option(min=1, help="Number of random networks per dtype and number of ticks.")] = 100,
    random_state: Seed = 0,
    activation: Annotated[PaperActivation, Option("--activation", "-a", help="Activation of all neurons.")] = "relu",
    reference: Annotated[
        Reference | None, Option(help="Reference: torch (autograd) or numpy. Default: torch if installed.")
    ] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="File (.json) for the results.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare every gradient method with an independent reference, as in the paper.

    The networks are harder than those of the paper: 100 random 5-10-3 networks
    with a dense matrix (edges into inputs, self-loops, cycles), batches of 10,
    1 to 5 ticks, in float64 and float32. The exit code is 1 if any difference
    exceeds the tolerance.

    [bold]Examples[/bold]

      meshnn verify
      meshnn verify --tests 20 --activation tanh --out verify.json
    """
    if out is not None:
        check_output("--out", out)
    with progress("verifying", unit="nets") as tell:
        report = run(tests, random_state, activation, reference, tell)
    facts = report.to_dict() | {"versions": versions()}
    if out is not None:
        with explained("write", str(out)):
            out.write_text(json.dumps(finite(facts), indent=2) + "\n")
    if as_json:
        print_json(facts)
    else:
        Console().print(_table(report))
    if not report.passed:
        print_lines("meshnn: a difference is out of tolerance; please report this table", stderr=True, style="red")
        raise Exit(1)


def _table(report: VerifyReport) -> Table:
    tolerances = ", ".join(f"{value:.0e} in {dtype}" for dtype, value in TOLERANCE.items())
    table = Table(
        title=f"Sums of absolute differences to {report.reference} in float64: {report.tests} networks 5-10-3 with a "
        f"dense matrix, {report.activation}; mean and 95% confidence interval",
        caption=f"worst: largest difference of states or gradients, divided by the largest entry. "
        f"Tolerance: {tolerances}.\n"
        "The results of the paper: float32, 1 or 2 ticks, without edges into inputs.",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, caption_justify="left", title_justify="left",
    )  # fmt: skip
    for heading in ("dtype", "ticks", "method", "states", "gradients", "worst", ""):
        table.add_column(heading, justify="right" if heading in ("ticks", "worst") else "left", no_wrap=True)
    for row in report.rows:
        passed = "[green]ok[/green]" if row.passed else "[red]FAIL[/red]"
        cells = (row.dtype, str(row.ticks), row.method, str(row.states), str(row.gradients), f"{row.worst:.1e}", passed)
        table.add_row(*cells, end_section=row.method == report.rows[-1].method)
    table.add_row(
        "paper", "1, 2", "tensor", *(str(ErrorInterval(*report.paper[kind])) for kind in ("states", "gradients"))
    )
    return table
