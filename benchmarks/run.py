"""All benchmarks in one run on one thread: prints ratios, marks missed bars, saves JSON.

python benchmarks/run.py [--out FILE] [--quick] [--only steps,mnist,calls,large,ticks,threads,processes,estimators]
python benchmarks/run.py --quick --nets "65-200" --ticks 2       # one row of the training steps, some seconds
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

# One thread for all; set before numpy, jax and torch are imported.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(Path(__file__).parent))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

#: Maximum seconds of processor time per process with a warm cache.
START_UP = {"meshnn info": 0.5, "meshnn predict, 150 rows": 0.9, "from meshnn import MeshClassifier": 0.7}
SECTIONS = ("steps", "mnist", "calls", "large", "ticks", "threads", "processes", "estimators")
console = Console(width=max(Console().width, 170))


def bar(value, least=None, most=None):
    """Format a figure with its bar and whether it is met."""
    met = (least is None or value >= least) and (most is None or value <= most)
    wanted = f">= {least:g}" if least is not None else f"<= {most:g}"
    return f"{value:.3g} ({wanted})" if met else f"[red]{value:.3g} ({wanted}) MISSED[/red]"


def table(title, headings, rows):
    """Print a table."""
    drawn = Table(title=title, title_justify="left")
    for heading in headings:
        drawn.add_column(heading, justify="left" if heading in ("net", "what", "note", "method") else "right")
    for row in rows:
        drawn.add_row(*map(str, row))
    console.print(drawn)


def show_steps(result):
    """Show nets x ticks, then the fractions of the peak rates."""
    peak, rows = result["peak"], result["rows"]
    ways = ("jax masked", "jax split", "jax edges", "torch compiled")
    table(
        "One training step with Adam, microseconds, one thread; times faster than the fastest peer",
        ("net", "ticks", "live/edges", "method", "meshnn", *ways, "torch", "x peer", "x torch"),
        [
            (
                r["net"],
                r["ticks"],
                f"{r['live']}/{r['edges']}",
                r["method"],
                *(f"{r['microseconds'][k]:.1f}" if k in r["microseconds"] else "-" for k in ("meshnn", *ways)),
                f"{r['microseconds']['meshnn'] * r['times torch']:.0f}" if r["times torch"] else "-",
                bar(r["times"], least=r["bar"]),
                f"{r['times torch']:.0f}" if r["times torch"] else "-",
            )
            for r in rows
        ],
    )
    table(
        f"Roofline: one thread multiplies matrices at {peak['GFLOP/s']:.0f} GFLOP/s and copies at "
        f"{peak['GB/s']:.0f} GB/s",
        ("net", "ticks", "GFLOP/s", "of sgemm", "GB/s", "of copy"),
        [
            (
                r["net"],
                r["ticks"],
                f"{r['roofline']['GFLOP/s']:.1f}",
                bar(r["roofline"]["of sgemm"], least=r["of sgemm bar"])
                if r["of sgemm bar"]
                else f"{r['roofline']['of sgemm']:.2f}",
                f"{r['roofline']['GB/s']:.1f}",
                f"{r['roofline']['of copy']:.2f}",
            )
            for r in rows
        ],
    )


def show_mnist(result):
    """Show a layered net on images."""
    rows, epochs = result["rows"], result["epochs"]
    table(
        f"784-128-10, relu, Adam, batches of 64 of {result['samples']} rows of {result['data']}",
        ("what", "s per epoch", f"test accuracy after {epochs}", "note"),
        [(name, f"{r['seconds']:.3f}", f"{r['accuracy']:.3f}", r["note"]) for name, r in rows.items()],
    )
    console.print(
        f"times faster than the faster peer {bar(result['times peer'], least=2)}, "
        f"two threads {bar(result['times one thread'], least=1.7)}, "
        f"accuracy less than the worst peer's {bar(result['behind'], most=0.01)}\n"
    )


def show_calls(rows):
    """Show microseconds of small calls."""
    table(
        "Small calls, microseconds", ("what", "us"), [(r["what"], bar(r["microseconds"], most=r["bar"])) for r in rows]
    )


def show_large(result):
    """Show a million edges."""
    table(
        "A million edges, batch 64, one thread",
        ("ticks", "edges", "dead", "method", "first, s", "next, ms", "over import, MiB", "note"),
        [
            (
                r["ticks"], r["edges"], r["dead"],
                r["method"] if r["method"] != "auto" else f"auto: {r['chosen']}",
                bar(r["plan and first gradient, s"], most=15),
                f"{r['next gradients, ms']:.1f}",
                bar(r["peak memory over the import, MiB"], most=1024),
                r["reason"] if r["method"] == "auto" else "",
            )
            for r in result["rows"]
        ],
    )  # fmt: skip
    t = result["torch"]
    console.print(
        f"PyTorch (CSR product, sampled_addmm): {t['milliseconds']['torch']:.0f} ms, "
        f"meshnn {t['milliseconds']['meshnn']:.1f} ms: times faster {bar(t['times torch'], least=5)}\n"
    )


def show_ticks(rows):
    """Show more ticks."""
    names = ("factored", "influence", "adjoint", "jax masked", "jax split")
    table(
        "Gradient at more ticks, microseconds, one thread",
        ("net", "ticks", *names, "auto takes", "forward takes", "forward/best", "forward-only/adjoint"),
        [
            (
                r["net"],
                r["ticks"],
                *(f"{r['microseconds'][k]:.0f}" if k in r["microseconds"] else "-" for k in names),
                r["auto takes"],
                r["forward takes"],
                bar(r["forward over best forward-only"], most=1.3),
                f"{r['forward-only over adjoint']:.1f}",
            )
            for r in rows
        ],
    )


def show_threads(rows):
    """Show two threads."""
    table(
        "Two threads, ticks 3",
        ("net", "batch", "1 thread, ms", "2 threads, ms", "speed-up", "same bits"),
        [
            (
                r["net"],
                r["batch"],
                *(f"{r['milliseconds'][k]:.2f}" for k in ("1", "2")),
                bar(r["speed-up"], least=1.6),
                r["same bits"],
            )
            for r in rows
        ],
    )


def show_processes(r):
    """Show start-up and memory."""
    table(
        "Separate processes",
        ("what", "figure"),
        [
            ("import meshnn, s", bar(r["import, s"], most=0.6)),
            ("import and first gradient, s", bar(r["import and first gradient, s"], most=0.25)),
            *(
                (f"{name}, s of processor time", bar(seconds, most=START_UP[name]) if name in START_UP else seconds)
                for name, seconds in r["start-up"].items()
            ),
            ("gradient of 33-50-10 at batch 1,000,000 adds, MiB", bar(r["batch of 1,000,000"]["adds, MiB"], most=200)),
        ],
    )


def show_estimators(parts):
    """Show whole fits."""
    table(
        "Estimators: whole fits, one thread",
        ("what", "figure", "bar", "", "note"),
        [
            (r["what"], f"{r['figure']:.4g}", r["bar"], "ok" if r["met"] else "[red]MISSED[/red]", r["beside"])
            for part in parts.values()
            for r in part["rows"]
        ],
    )


def main():
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="file of the figures, as JSON")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, comma-separated")
    parser.add_argument("--nets", default="", help="only training steps of these nets: parts of names, separated by ;")
    parser.add_argument("--ticks", default="2,3,4,8", help="only training steps at these ticks")
    options = parser.parse_args()
    chosen = options.only.split(",")
    if options.nets and options.only == ",".join(SECTIONS):
        chosen = ["steps"]
    unknown = set(chosen) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown section {', '.join(sorted(unknown))}; choose from {', '.join(SECTIONS)}")

    import importlib

    import jax
    import numpy
    import sklearn
    import torch

    torch.set_num_threads(1)
    results = {
        "versions": {m.__name__: m.__version__ for m in (jax, numpy, sklearn, torch)},
        "machine": {"platform": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "quick": options.quick,
    }
    for section in chosen:
        module = importlib.import_module(section)
        results[section] = measured(section, module, options)
        globals()[f"show_{section}"](results[section])
        if options.out is not None:  # after every section, so that an interrupted run keeps its results
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(results, indent=2) + "\n")
    if options.out is not None:
        console.print(f"saved to {options.out}")


def measured(section, module, options):
    """Return the figures of a section."""
    if section == "steps":
        return module.measure(options.quick, options.nets, [int(k) for k in options.ticks.split(",")])
    return module.measure() if section == "large" else module.measure(options.quick)


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
