"""Print the tables of training steps and of MNIST as Markdown, from a result file of run.py.

python benchmarks/page.py results/bench.json
"""

import json
import sys
from pathlib import Path

WAYS = ("jax masked", "jax split", "jax edges", "torch compiled")


def table(headings, rows):
    """Print a Markdown table."""
    print("| " + " | ".join(headings) + " |\n|" + "---|" * len(headings))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print()


def figure(value):
    """Format with three digits, None as a dash."""
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def steps(found):
    """Print microseconds, ratios and fractions of the peak rates."""
    peak = found["peak"]
    print(f"One thread multiplies matrices at {peak['GFLOP/s']:.0f} GFLOP/s and copies at {peak['GB/s']:.0f} GB/s.\n")
    table(
        ("net, batch", "ticks", "live / all edges", "method", "meshnn", *WAYS, "x fastest", "bar", "GFLOP/s",
         "of sgemm", "of copy"),
        [
            (
                r["net"], r["ticks"], f"{r['live']} / {r['edges']}", r["method"],
                *(figure(r["microseconds"].get(name)) for name in ("meshnn", *WAYS)),
                f"{r['times']:.2f}" if r["times"] >= r["bar"] else f"**{r['times']:.2f}**", f"{r['bar']:g}",
                f"{r['roofline']['GFLOP/s']:.0f}", f"{r['roofline']['of sgemm']:.0%}",
                f"{r['roofline']['of copy']:.0%}",
            )
            for r in found["rows"]
        ],
    )  # fmt: skip


def mnist(found):
    """Print seconds per epoch."""
    print(f"{found['samples']} rows of {found['data']}, accuracy after {found['epochs']} epochs.\n")
    table(
        ("", "s per epoch", "test accuracy", ""),
        [(name, f"{r['seconds']:.3f}", f"{r['accuracy']:.3f}", r["note"]) for name, r in found["rows"].items()],
    )
    print(f"{found['times peer']:.2f} times the faster peer, two threads {found['times one thread']:.2f} times one.\n")


if __name__ == "__main__":
    results = json.loads(Path(sys.argv[1]).read_text())
    for section in (steps, mnist):
        if section.__name__ in results:
            section(results[section.__name__])
