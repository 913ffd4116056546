"""Nets with memory on streams, in one run on one thread: prints tables with bars, lists better peers, saves JSON.

python benchmarks/temporal.py [--only laser,narma,memory,price,speed] [--quick] [--out results/temporal.json]
python benchmarks/temporal_figures.py results/temporal.json                    # figures of the saved results
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

import temporal_memory  # noqa: E402
import temporal_price  # noqa: E402
import temporal_series  # noqa: E402
from run import _processor, bar, console, table  # noqa: E402


def show_laser(found):
    """Show meshnn first, then peers."""
    first = found["rows"][0]
    seeds = len(first["each"])
    table(
        f"Santa Fe laser, one pass, NMSE of the last 1000: mean over {seeds} seeds of ours, fewer of peers",
        ("what", "NMSE", "first five", "worst", "us per step", "parameters"),
        [
            (
                r["what"],
                bar(r["mean"], most=found["bar"]) if r is first else f"{r['mean']:.4f}",
                f"{sum(r['each'][:5]) / len(r['each'][:5]):.4f}",
                f"{r['worst']:.4f}",
                bar(r["microseconds"], most=found["bar microseconds"]) if r is first else f"{r['microseconds']:.1f}",
                r["parameters"],
            )
            for r in found["rows"]
        ],
    )
    losers(first["mean"], found["rows"][1:])


def show_narma(found):
    """Show one table per rule."""
    ours = {r["rule"]: r for r in found["rows"] if r["what"].startswith("meshnn")}
    table(
        "NARMA-10 from its input alone, NRMSE of the last 1000 of 6000; ours in one pass, peers fitted to 5000",
        ("what", "rule", "NRMSE", "worst", "us per step", "parameters"),
        [
            (
                r["what"],
                r["rule"],
                bar(r["mean"], most=found["bar"]) if r is ours[r["rule"]] else f"{r['mean']:.3f}",
                f"{r['worst']:.3f}",
                f"{r['microseconds']:.1f}",
                r["parameters"],
            )
            for r in found["rows"]
        ],
    )
    for rule, own in ours.items():
        losers(own["mean"], [r for r in found["rows"] if r["rule"] == rule and r is not own], f"{rule} rule: ")


def losers(ours, peers, before=""):
    """Print the models with a smaller error than meshnn."""
    better = [f"{r['what']} ({r['mean']:.3g})" for r in peers if r["mean"] < ours]
    console.print(
        f"{before}{'[red]better than ours: ' + ', '.join(better) + '[/red]' if better else 'no peer is better'}\n"
    )


def show_memory(found):
    """Show the errors of each net per task."""
    for task, part in found.items():
        table(
            f"{task}, {part['steps']} steps: error rate in the last {part['window']}",
            ("what", "errors", "worst seed", "seeds solved", "us per step", "parameters"),
            [
                (r["what"], f"{r['last']:.3f}", f"{r['worst']:.3f}", f"{r['solved']} of {len(r['curves'])}",
                 f"{r['microseconds']:.1f}", r["parameters"])
                for r in part["rows"]
            ],
        )  # fmt: skip


def show_price(found):
    """Show cost and accuracy of truncation."""
    names = [f"cosine after {k}" for k in found["moments"]]
    table(
        f"Influence truncated after r hops, delayed xor {tuple(found['delays'])} with Adam, {found['steps']} steps",
        ("net", "method", "multiply-adds", "us per step", *names, "errors, all steps", "errors, last 5000"),
        [
            (r["net"], r["method"], r["multiply-adds"], f"{r['microseconds']:.1f}", *(f"{c:.3f}" for c in r["cosine"]),
             f"{r['overall']:.4f}", f"{r['last']:.4f}")
            for r in found["rows"]
        ],
    )  # fmt: skip


def show_speed(found):
    """Show peers of the same run, and published figures."""
    peers = sorted({name for r in found["rows"] for name in r["times"]})
    table(
        "A step of exact influence with Adam, one stream, 8 inputs, float32, microseconds",
        ("net", "parameters", "meshnn", *peers, *(f"x {p}" for p in peers), "x published torch", "outputs apart"),
        [
            (
                r["net"],
                r["parameters"],
                bar(r["microseconds"]["meshnn"], most=r["bar"]),
                *(f"{r['microseconds'][p]:.0f}" for p in peers),
                *(bar(r["times"][p], least=r["wanted"]) for p in peers),
                bar(r["times published"], least=r["wanted"]),
                f"{max(r['apart'].values()):.1e}",
            )
            for r in found["rows"]
        ],
    )
    part = found["columns"]
    console.print(f"{part['columns']} columns, {part['parameters']} parameters: us per step "
                  f"{bar(part['microseconds'], most=part['bar'])}\n")  # fmt: skip
    for r in found["rows"]:
        faster = [name for name, times in r["times"].items() if times < 1]
        if faster:
            console.print(f"[red]{r['net']}: {', '.join(faster)} faster than meshnn[/red]")


def speed(quick):
    """Measure the speed; imported on demand, because it requires torch, and JAX if installed."""
    import torch

    import temporal_speed

    torch.set_num_threads(1)
    return temporal_speed.measure(quick)


SECTIONS = {
    "laser": (temporal_series.laser, show_laser),
    "narma": (temporal_series.narma, show_narma),
    "memory": (temporal_memory.measure, show_memory),
    "price": (temporal_price.measure, show_price),
    "speed": (speed, show_speed),
}


def main():
    """Measure, print and save after every section; sections that were saved earlier are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, comma-separated")
    parser.add_argument("--out", type=Path, default=None, help="file of the figures, as JSON")
    parser.add_argument("--quick", action="store_true", help="fewer seeds, steps and rounds")
    options = parser.parse_args()
    chosen = options.only.split(",")
    unknown = set(chosen) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown section {', '.join(sorted(unknown))}; choose from {', '.join(SECTIONS)}")
    results = json.loads(options.out.read_text()) if options.out is not None and options.out.is_file() else {}
    results["machine"] = {"platform": platform.platform(), "processor": _processor(), "cores": os.cpu_count()}
    for section in chosen:
        measure, show = SECTIONS[section]
        results[section] = {"time": time.strftime("%Y-%m-%dT%H:%M:%S"), "found": measure(options.quick)}
        show(results[section]["found"])
        if options.out is not None:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(results, indent=1) + "\n")
    if options.out is not None:
        console.print(f"saved to {options.out}")


if __name__ == "__main__":
    main()
