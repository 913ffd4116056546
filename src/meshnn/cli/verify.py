"""`meshnn verify`: the paper's numerical test on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from rich import box
from rich.console import Console
from rich.table import Table
from typer import Exit, Option

from meshnn.cli.options import AsJson, Seed
from meshnn.cli.output import check_output, print_json, progress, versions
from meshnn.files import explained, finite
from meshnn.verify import PAPER, TOLERANCE, ErrorInterval, VerifyReport
from meshnn.verify import verify as run


def verify(
    tests: Annotated[int, Option(min=1, help="Number of random nets per dtype and ticks.")] = 100,
    random_state: Seed = 0,
    activation: Annotated[
        str, Option("--activation", "-a", help="Activation of all neurons: relu (the paper's) or tanh.")
    ] = "relu",
    reference: Annotated[str | None, Option(help="The reference: torch (autograd, if installed) or numpy.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="The results to write, a .json file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare every gradient method with an independent reference, as the paper does, on harder nets.

    100 random nets 5-10-3 with a dense matrix (edges into inputs, self-loops, cycles), batches of 10, ticks 1 to 5, in
    float64 and float32. Exit code 1 if any difference is out of tolerance.

    [bold]Examples[/bold]

      meshnn verify

      meshnn verify --tests 20 --activation tanh --out verify.json
    """
    if out is not None:
        check_output("--out", out)
    with progress("verifying") as tell:
        for report, done, total in run(tests, random_state, activation, reference):  # noqa: B007
            tell(done, total, "nets")
    facts = report.to_dict() | {"versions": versions()}
    if out is not None:
        with explained("write", str(out)):
            out.write_text(json.dumps(finite(facts), indent=2) + "\n")
    if as_json:
        print_json(facts)
    else:
        console = Console()
        console.print(_table(report, "±" if console.encoding.lower().startswith("utf") else "+-"))
    if not report.passed:
        Console(stderr=True).print("meshnn: a difference is out of tolerance", style="red")
        raise Exit(1)


def _table(report: VerifyReport, plus_minus: str) -> Table:
    tolerances = ", ".join(f"{value:.0e} in {dtype}" for dtype, value in TOLERANCE.items())
    table = Table(
        title=f"Sums of absolute differences to {report.reference} in float64: {report.tests} nets 5-10-3 with a dense "
        f"matrix, {report.activation}; mean and 95% confidence interval",
        caption=f"worst: largest difference of states or gradients over the largest entry; allowed: {tolerances}.\n"
        "The paper's figures are float32, 1 or 2 ticks, edges into inputs left out.",
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, caption_justify="left", title_justify="left",
    )  # fmt: skip
    for heading in ("dtype", "ticks", "method", "states", "gradients", "worst", ""):
        table.add_column(heading, justify="right" if heading in ("ticks", "worst") else "left", no_wrap=True)
    first, last = report.rows[0].method, report.rows[-1].method
    for row in report.rows:
        begin = [row.dtype, str(row.ticks), row.method, str(row.states)]
        if row.method != first:  # dtype, ticks and states are those of the row above
            begin = ["", "", row.method, ""]
        passed = "[green]ok[/green]" if row.passed else "[red]FAIL[/red]"
        cells = [cell.replace("±", plus_minus) for cell in (*begin, str(row.gradients))]
        table.add_row(*cells, f"{row.worst:.1e}", passed, end_section=row.method == last)
    paper = (str(ErrorInterval(*PAPER[kind])).replace("±", plus_minus) for kind in ("states", "gradients"))
    table.add_row("paper", "1, 2", "tensor", *paper)
    return table
