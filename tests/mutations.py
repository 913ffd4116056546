"""Mutation testing: break one line at a time and check that the tests fail.

    python tests/mutations.py [--jobs 1] [--count 0] [--seed 0] [--only FOLDER ...]

By default the mutants of `SAMPLE` are tried; `--count` tries a number of random mutants of `TARGETS` instead. Each runs
in a copy of `src`; C++ code is recompiled. A mutant is detected if a test fails, crashes or does not end. The others
are printed, and the exit code is 1 if there are any.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "meshnn"
SECONDS = 600  # per mutant
TARGETS = ["_core", "plan", "losses", "engine", "streaming", "parameters.py", "training/solvers", "training/search.py"]
#: Tests that can detect a change in a folder or file.
NOTICED_BY = {
    "streaming": "golden stream kalman standardise stream_structure",
    "search.py": "search",
    "training": "ties_learned training stopping levenberg structure checkpoint",
    "src": "golden gradient tiles time parameters planner elementary losses levenberg training threads stream portable",
}
#: Lines of the source, identified by a part of the line, and the replacements.
SAMPLE = [
    ("share == zero ? zero : share * slope", "share * slope", "share + slope"),
    ("mean[e] = b1 * mean[e] + c1 * g[e]", "b1 * mean", "b1 + mean"),
    ("for (size_t k = 0, n = p1 - p0; k < n", "k < n", "k <= n"),
    ("state.factor *= 0.5", "state.factor *= 0.5", "pass"),
    ("grad = model.grad + ", "model.grad + ", "model.grad - "),
    ("fma(rest, load", "fma(", "// fma("),
    ("if loss <= state.safe_loss", "if ", "if not "),
    ("for (i64 c = first; c < last; ++c) {", "c < last", "c <= last"),
    ("return min(means, key=", "min(", "max("),
    ("loss < beat * (LIMITS.clearly", "beat * ", "beat + "),
    ("for (i64 l = 0; l < length; ++l", "l < length", "l <= length"),
    ("sum[k] += more[k]", "+=", "-="),
]
OPERATORS = [(" + ", " - "), (" - ", " + "), (" * ", " + "), (" / ", " * "), (" < ", " <= "), (" >= ", " > "),
             (" == ", " != "), (" && ", " || "), (" and ", " or "), ("min", "max"), (" += ", " -= ")]  # fmt: skip


def lines_of(targets):
    """Yield file, number and text of all lines of code."""
    for place in (SOURCE / target for target in targets):
        files = [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.suffix in (".py", ".hpp"))
        for path in files:
            for number, line in enumerate(path.read_text().splitlines()):
                if not re.match(r"\s*(#|//|\"|@|template|struct|import|from|raise|typedef)|.*[\"'`]", line):
                    yield path, number, line


def sample():
    """Return the mutants of `SAMPLE`: path, number of the line, old text, new text."""
    code, found = list(lines_of(["."])), []
    for part, old, new in SAMPLE:
        path, number, _ = next((one for one in code if part in one[2]), (None, 0, ""))
        if path is None:
            sys.exit(f"no line has {part!r}; put another mutant into SAMPLE")
        found.append((path, number, old, new))
    return found


def drawn(count, seed, targets):
    """Return random mutants."""
    sites = [(*place[:2], old, new) for place in lines_of(targets) for old, new in OPERATORS if old in place[2]]
    return random.Random(seed).sample(sites, min(count, len(sites)))


def copied(folder):
    """Copy the source with its compiled core."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "CMakeLists.txt", folder)
    return folder


def build(folder):
    """Compile the core of a copy; return whether this succeeds."""
    options = [f"-DPython_EXECUTABLE={sys.executable}", "-DMESHNN_OPTIMIZE=-O1",
               f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={folder / 'src' / 'meshnn'}"]  # fmt: skip
    commands = [["cmake", "-S", folder, "-B", folder / "build", *options], ["cmake", "--build", folder / "build"]]
    return all(subprocess.run(command, check=False, capture_output=True).returncode == 0 for command in commands)


def noticed(folder, path, number, old, new):
    """Return how the tests detect a mutant in a copy, or an empty string."""
    here, text = folder / path.relative_to(ROOT), path.read_text()
    lines = text.splitlines(keepends=True)
    lines[number] = lines[number].replace(old, new, 1)
    names = next(names for part, names in NOTICED_BY.items() if part in path.parts).split()
    tests = [next((ROOT / "tests").rglob(f"test_{name}.py")) for name in names]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=first",
               "-m", "not slow", *tests]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    here.write_text("".join(lines))
    try:
        if path.suffix != ".py" and not build(folder):
            return "not C++"
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "time limit"
    finally:
        here.write_text(text)
        if path.suffix != ".py":
            build(folder)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[0] if failed else f"exit code {done.returncode}" if done.returncode else ""


def main():
    """Try the mutants and print the result of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--count", type=int, default=0, help="random mutants instead of the sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=TARGETS, help="folders and files to draw them from")
    given = parser.parse_args()
    chosen = drawn(given.count, given.seed, given.only) if given.count else sample()
    with tempfile.TemporaryDirectory() as root, ThreadPoolExecutor(given.jobs) as pool:
        free = SimpleQueue()
        for k in range(given.jobs):
            free.put(copied(Path(root) / f"copy{k}"))

        def work(mutant):
            folder = free.get()
            found = noticed(folder, *mutant)
            free.put(folder)
            path, number, old, new = mutant
            print(f"{path.relative_to(ROOT)}:{number + 1} {old!r} -> {new!r}: {found or 'SURVIVED'}", flush=True)
            return found

        results = list(pool.map(work, chosen))
    print(f"{sum(map(bool, results))} of {len(results)} mutants were noticed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
