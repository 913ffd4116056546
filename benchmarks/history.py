"""Benchmarks over time: one line of ratios per recorded run, and a page with one chart per ratio.

python benchmarks/history.py --add results/bench.json [--note "quick"]   # add a line with the result of run.py --out
python benchmarks/history.py --page results/history.html                # write the page of all lines

`make bench-history` does both with the last `make bench`. Only ratios are recorded, because microseconds of different
machines are not comparable. Points of different processors are not joined by a line either.
"""

import argparse
import json
import subprocess
import sys
from html import escape
from pathlib import Path

HISTORY = Path(__file__).parent / "history.jsonl"
WIDTH, HEIGHT, MARGIN = 300, 96, 8

STYLE = """
:root { color-scheme: light dark; --ink: #2b2b2b; --faint: #6b6b6b; --line: #d8d8d8; --back: #ffffff; --card: #f6f7f9;
        --met: #1f6fb2; --missed: #c95f00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --faint: #a5a5a5; --line: #4a4a4a; --back: #16181b; --card: #1f2226; --met: #56b4e9;
          --missed: #e69f00; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; margin: 0 0 .4rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .6rem; padding-top: 1rem; border-top: 1px solid var(--line); }
p { max-width: 75ch; }
.faint { color: var(--faint); font-size: .9rem; }
.scroll { overflow-x: auto; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 1rem; }
figure { margin: 0; padding: .7rem .8rem; background: var(--card); border-radius: 8px; }
figcaption { font-size: .9rem; display: flex; justify-content: space-between; gap: .8rem; }
figcaption b { font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { display: block; width: 100%; height: auto; margin-top: .4rem; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--faint); }
"""
ABOUT = {
    "A training step": "Times faster than the fastest of several ways in JAX and PyTorch, one thread; more is better.",
    "MNIST": "784-128-10 in batches of 64; more is better.",
    "A million edges": "Times faster than PyTorch's sparse products; more is better.",
    "The chosen method": "Time of the method that <code>forward</code> chooses, divided by that of the best "
    "forward-only method; 1 is optimal.",
    "Forward over backward": "Time of the best forward-only method divided by that of backprop; less is better. Beyond "
    "three ticks it exceeds 1.",
    "Two threads": "Times faster than one thread; 2 is optimal.",
    "Whole fits": "Compared with JAX or scikit-learn, see the captions.",
}


def ratios(found):
    """Return (ratio, bar) of a result of run.py by name; a bar is a text such as ">= 4", or ""."""
    kept = {}
    for r in found.get("steps", {}).get("rows", ()):
        kept[f"A training step: {r['net']}, {r['ticks']} ticks"] = (r["times"], f">= {r['bar']:g}")
    if mnist := found.get("mnist"):
        kept["MNIST: times the faster peer"] = (mnist["times peer"], ">= 2")
        kept["MNIST: two threads, times one"] = (mnist["times one thread"], ">= 1.7")
    if large := found.get("large"):
        kept["A million edges: times PyTorch"] = (large["torch"]["times torch"], ">= 5")
    for r in found.get("ticks", ()):
        what = f"{r['net']}, {r['ticks']} ticks"
        kept[f"The chosen method: {what}"] = (r["forward over best forward-only"], "<= 1.3")
        kept[f"Forward over backward: {what}"] = (r["forward-only over adjoint"], "")
    for r in found.get("threads", ()):
        kept[f"Two threads: {r['net']}, {r['batch']}"] = (r["speed-up"], ">= 1.6")
    for part in found.get("estimators", {}).values():
        for r in part["rows"]:
            if "accuracy" not in r["what"] and not r["what"].endswith(", s"):  # neither a score nor seconds
                kept[f"Whole fits: {r['what']}"] = (r["figure"], r["bar"])
    return {name: (float(f"{value:.4g}"), bar) for name, (value, bar) in kept.items()}


def line_of(found, commit, note=""):
    """Return a run as one line of the history: date, commit, machine, ratios and their bars."""
    kept = ratios(found)
    if not kept:
        raise ValueError("the file has no ratios: run `make bench` first, or run.py with a section that compares")
    machine = found["machine"]
    notes = [text for text in ("quick" if found.get("quick") else "", note) if text]
    return {
        "commit": commit,
        "time": found["time"],
        "machine": f"{machine['processor']}, {machine['cores']} cores",
        "versions": found["versions"],
        "note": ", ".join(notes),
        "ratios": {name: value for name, (value, _) in kept.items()},
        "bars": {name: bar for name, (_, bar) in kept.items() if bar},
    }


def read(path):
    """Return all lines, oldest first."""
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text().splitlines() if text.strip()]


def append(path, line):
    """Add a line unless the history contains this run; return whether it was added."""
    if any((old["time"], old["machine"]) == (line["time"], line["machine"]) for old in read(path)):
        return False
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return True


def met(value, bar):
    """Return whether a ratio meets its bar; True without a bar."""
    if not bar:
        return True
    sign, limit = bar.split()
    return value >= float(limit) if sign == ">=" else value <= float(limit)


def chart(name, lines):
    """Return a small chart of one ratio over all runs that have it."""
    having = [(k, line) for k, line in enumerate(lines) if name in line["ratios"]]
    last = having[-1][1]
    bar = last["bars"].get(name, "")
    values = {k: line["ratios"][name] for k, line in having}
    limit = float(bar.split()[1]) if bar else None
    top = 1.15 * max([*values.values(), limit or 0.0])

    def place(k, value):
        across = MARGIN + (WIDTH - 2 * MARGIN) * (k / (len(lines) - 1) if len(lines) > 1 else 0.5)
        return round(across, 1), round(HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value / top, 1)

    drawn = [f'<line x1="0" x2="{WIDTH}" y1="{HEIGHT - MARGIN}" y2="{HEIGHT - MARGIN}" stroke="var(--line)"/>']
    if limit is not None:
        _, y = place(0, limit)
        drawn.append(f'<line x1="0" x2="{WIDTH}" y1="{y}" y2="{y}" stroke="var(--faint)" stroke-dasharray="4 3"/>')
    for machine in sorted({line["machine"] for _, line in having}):
        points = [place(k, values[k]) for k, line in having if line["machine"] == machine]
        if len(points) > 1:
            text = " ".join(f"{x},{y}" for x, y in points)
            drawn.append(f'<polyline points="{text}" fill="none" stroke="var(--faint)"/>')
    for k, line in having:
        x, y = place(k, values[k])
        colour = "met" if met(values[k], bar) else "missed"
        about = escape(
            f"{values[k]:.3g}, {line['commit']}, {line['time'][:10]}, {line['machine']} {line['note']}".strip()
        )
        drawn.append(f'<circle cx="{x}" cy="{y}" r="4" fill="var(--{colour})"><title>{about}</title></circle>')
    what = escape(name.partition(": ")[2])
    value = values[having[-1][0]]
    aside = f' <span class="faint">bar {escape(bar)}</span>' if bar else ""
    word = "" if met(value, bar) else " missed"
    return (
        f"<figure><figcaption><span>{what}</span><b>{value:.3g}{word}{aside}</b></figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{what}, {len(having)} runs, last {value:.3g}">'
        f"{''.join(drawn)}</svg></figure>"
    )


def page(lines):
    """Return the page: charts by group, then the runs."""
    names = list(dict.fromkeys(name for line in reversed(lines) for name in line["ratios"]))
    groups = list(dict.fromkeys(name.partition(": ")[0] for name in names))
    parts = []
    for group in sorted(groups, key=lambda g: list(ABOUT).index(g) if g in ABOUT else len(ABOUT)):
        charts = "".join(chart(name, lines) for name in names if name.startswith(f"{group}: "))
        about = f'<p class="faint">{ABOUT.get(group, "")}</p>'
        parts.append(f'<h2>{escape(group)}</h2>{about}<div class="charts">{charts}</div>')
    cells = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in (
            line["commit"], line["time"].replace("T", " "), line["machine"], str(len(line["ratios"])),
            ", ".join(f"{name} {version}" for name, version in line["versions"].items()), line["note"],
        )) + "</tr>"
        for line in reversed(lines)
    )  # fmt: skip
    headings = "".join(f"<th>{text}</th>" for text in ("commit", "time", "machine", "ratios", "libraries", "note"))
    intro = (
        "Each dot is a run, the oldest on the left. The dashed line is the bar. "
        "Only runs on the same kind of processor are joined. No test depends on a timing."
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>meshnn: benchmarks over time</title>"
        f"<style>{STYLE}</style></head><body><main><h1>Benchmarks over time</h1><p>{intro}</p>"
        f"{''.join(parts)}<h2>Runs</h2><div class='scroll'><table><tr>{headings}</tr>{cells}</table></div>"
        "</main></body></html>\n"
    )


def commit_here():
    """Return the current commit, with a + if files differ from it."""
    folder = Path(__file__).parent
    try:
        name = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=folder, capture_output=True, text=True)
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "../src"], cwd=folder, capture_output=True)
    except OSError:
        return "unknown"
    return name.stdout.strip() + "+" * (changed.returncode == 1) if name.returncode == 0 else "unknown"


def main(arguments=None):
    """Add a line, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, help="result file of run.py --out")
    parser.add_argument("--page", type=Path, help="file of the page")
    parser.add_argument("--note", default="", help="remark about the run")
    parser.add_argument("--commit", default="", help="the measured commit, if it is not the current one")
    parser.add_argument("--history", type=Path, default=HISTORY, help="the file of lines")
    options = parser.parse_args(arguments)
    if options.add is None and options.page is None:
        parser.error("give --add FILE, --page FILE or both")
    if options.add is not None:
        try:
            line = line_of(json.loads(options.add.read_text()), options.commit or commit_here(), options.note)
        except FileNotFoundError:
            parser.error(f"{options.add} does not exist: run `make bench` first")
        except ValueError as error:  # includes invalid JSON
            parser.error(f"{options.add}: {error}")
        added = append(options.history, line)
        print(f"{options.history}: {len(line['ratios'])} ratios " + ("added" if added else "are already recorded"))
    if options.page is not None:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(page(read(options.history)))
        print(f"page: {options.page}")


if __name__ == "__main__":
    sys.exit(main())
