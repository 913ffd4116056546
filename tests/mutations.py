"""Break one thing at a time and see whether the tests notice.

    python tests/mutations.py [--count 30] [--seed 0] [--only FOLDER ...] [--kind KIND ...] [--jobs 1] [--list]

A mutant is the source, Python or C++, with one expression or statement changed. It lives in a copy of `src`; a change
of C++ is compiled for the instruction set of this machine. A mutant is killed by a test that fails, a crash or a time
limit (a loop without end). Survivors are printed and written to a JSON file, and the exit code is 1 if there are any:
fix the tests, or explain in `EQUIVALENT` why no test can notice.
"""

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Folders and files under src/meshnn; those that are missing are skipped.
TARGETS = [
    "_core", "plan", "losses", "engine", "streaming", "parameters.py", "training/solvers",
    "training/state.py", "training/evidence.py", "training/search.py",
]  # fmt: skip
#: Tests that can notice, those that notice most within seconds first.
NUMBERS = [
    "golden", "gradient", "tiles", "time", "parameters", "planner", "elementary", "losses", "multilabel", "refusals",
    "mesh", "levenberg", "training", "threads", "jacobian", "structure",
]  # fmt: skip
TRAINING = ["ties_learned", "training", "stopping", "levenberg", "structure", "checkpoint", "estimators"]
STREAMS = ["golden", "stream", "kalman", "standardise", "stream_structure", "networks", "online", "forecaster"]
#: Files, and folders, with tests of their own.
OTHERS = {
    "search.py": ["search"], "streaming": STREAMS, "stream.hpp": STREAMS, "influence.hpp": STREAMS,
    "kalman.hpp": STREAMS, "covariance.hpp": STREAMS, "standardise.hpp": STREAMS, "influence.py": STREAMS,
    "portable.h": ["golden", "portable"], "portable_learn.h": ["golden", "portable"],
    "portable_math.h": ["golden", "portable", "c_math"],
}  # fmt: skip
#: Limits of a run: of the processor (the machine may be busy), of the clock, of memory.
WORK, SECONDS, MEMORY = 300, 1800, 12 << 30

#: Mutants that no test can or need notice: file (regular expression), source line (regular expression), why.
EQUIVALENT = [
    (r"_core/", r"constexpr (int|i64|double|size_t) [A-Z_]+ = ", "tuned by measurements, or a size with slack"),
    (r"_core/(calls|epochs)\.hpp", r"threads|LARGE|MOST_BUCKETS|poll", "which thread does it, not what is done"),
    (r"_core/(calls|epochs)\.hpp", r"rounded_up|memory\.data|NO_MEMORY", "more memory than is needed does no harm"),
    (r".", r"offset=offset\[:-1\]", "the last entry is not read; a view of one entry less lies in the same memory"),
    (r".", r"count <= LIMITS.sample", "a sample of all there are is all of them, in another order"),
    (r".", r"strict=True", "lists of one length"),
    (r"evidence\.py", r"np\.unique\(kind\[kind >= 0\]\)", "kind 0 is from inputs to inputs, and such edges are dead"),
    (r"elementary\.hpp", r"x [<>] (largest|least)", "at the limit itself both sides are the same number"),
    (r"solvers/lm\.py", r"loss <= before \* \(1 \+ rounding\)", "equal to the last bit: a matter of luck"),
    (r"schedule\.py", r"min\(k - 1, self\._settled\)", "fewer ticks share a list, which is the same list"),
    (r".", r"^[A-Z][A-Z0-9_, ]+ = [0-9]", "a constant tuned by measurements: another one is as right, but slower"),
    (r"lists\.py", r"n_lists \* 4", "4 bytes of thousands: prices are estimates"),
    (r"plan/cost\.py", r"_count|cells?|widths|lines|took|rule", "words and columns: doctests look at them"),
    (r"losses\.hpp|losses/losses\.py", r"z > zero|outputs < 0", "at 0 both branches are the same"),
    (r"activations\.hpp", r"t < zero \? (zero|x|e) : ", "at t = 0 both branches are the same"),
    (r".", r"MemoryError|PlanTooLarge|limit|nbytes", "limits of memory are tested in test_planner with their own bars"),
]

#: One of each sort for every day: kind and source line (regular expression), wherever it stands.
SAMPLE = [
    ("arithmetic", r"share == zero \? zero : share \* slope"),
    ("arithmetic", r"mean\[e\] = b1 \* mean"),
    ("comparison", r"for \(size_t k = 0, n = p1 - p0; k < n"),
    ("statement dropped", r"state\.factor \*= 0\.5"),
    ("arithmetic", r"grad = model\.grad \+"),
    ("statement dropped", r"fma\(rest, load"),
    ("condition", r"if loss <= state\.safe_loss"),
    ("comparison", r"for \(i64 c = first; c < last; \+\+c\) \{"),
    ("call", r"return min\(means, key="),
    ("arithmetic", r"loss < beat \* \(LIMITS\.clearly"),
    ("comparison", r"for \(i64 l = 0; l < length; \+\+l"),
    ("arithmetic", r"sum\[k\] \+= more\[k\]"),
]


@dataclass(frozen=True)
class Mutant:
    """A change of the text from `begin` to `end` of a file."""

    path: Path
    old: str  # the file as it was, whatever is edited meanwhile
    line: int
    kind: str
    begin: int
    end: int
    text: str

    def source(self):
        return self.old[: self.begin] + self.text + self.old[self.end :]

    def change(self):
        """The lines before and after, without indentation."""
        old, new = self.old, self.source()
        if self.begin == self.end:  # a loop that got an end
            header = old.splitlines()[self.line - 1].strip()
            return header, f"{header} ... {self.text.strip()}"
        first = old.rfind("\n", 0, self.begin) + 1
        before = old[first : old.find("\n", self.end)]
        after = new[first : new.find("\n", self.begin + len(self.text))]
        return before.strip(), after.strip()

    def __str__(self):
        before, after = self.change()
        return f"{self.path.relative_to(ROOT)}:{self.line} [{self.kind}]\n    - {before}\n    + {after}"


# -- what can be changed -----------------------------------------------------------------------------------------------

ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
              ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}  # fmt: skip
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
               ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is}  # fmt: skip
CALLS = {"add": "sub", "sub": "add", "mul": "add", "div": "mul", "larger": "add", "max": "min", "min": "max",
         "zeros": "ones", "ones": "zeros", "flatnonzero": "argsort", "maximum": "minimum", "minimum": "maximum",
         "exp": "log", "log": "exp", "sum": "max", "any": "all", "all": "any"}  # fmt: skip


def changes(node):
    """`(kind, node to put there)` for an expression or a statement."""
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield "arithmetic", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        yield "comparison", ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and, or", ast.BoolOp(other, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield "sign", node.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "constant", ast.Constant(node.value + 1 if isinstance(node.value, int) else node.value * 2 or 1.0)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node, ast.IfExp):
        yield "condition", ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(node, ast.AugAssign):
        yield "statement dropped", ast.Pass()


def _calls(node):
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "range":
        stop = 0 if len(node.args) == 1 else 1
        shorter = ast.BinOp(node.args[stop], ast.Sub(), ast.Constant(1))
        yield "range", ast.Call(node.func, [*node.args[:stop], shorter, *node.args[stop + 1 :]], [])
    elif name in CALLS and isinstance(node.func, ast.Name):
        yield "call", ast.Call(ast.Name(CALLS[name]), node.args, node.keywords)
    elif name in CALLS:
        yield "call", ast.Call(ast.Attribute(node.func.value, CALLS[name]), node.args, node.keywords)


def parts(tree):
    """The nodes of a file that run: no annotations, decorators, docstrings, messages of errors."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            continue
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_comment", "op", "ops", "ctx"):
                continue
            children = value if isinstance(value, list) else [value]
            waiting.extend(child for child in children if isinstance(child, ast.AST))


#: Of C++: what is searched, what is put there.
CPP = {
    "arithmetic": {" + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ", " += ": " -= ", " -= ": " += "},
    "comparison": {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == "},
    "and, or": {" && ": " || ", " || ": " && "},
    "condition": {"if (": "if (!("},
}


def mutants_of_cpp(path):
    """Operators changed and statements dropped, line by line; not in comments, macros and declarations of templates."""
    text, at = path.read_text(), 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        code = line.split("//")[0]
        if not re.match(r"\s*(#|template|/\*|\*|typedef|using|static_assert|struct)", code) and '"' not in code:
            for kind, pairs in CPP.items():
                for old, new in pairs.items():
                    for found in re.finditer(re.escape(old), code):
                        begin, end = at + found.start(), at + found.end()
                        if kind == "condition":
                            close = _closing(text, end)
                            yield Mutant(path, text, number, kind, begin, close, new + text[end:close] + ")")
                        else:
                            yield Mutant(path, text, number, kind, begin, end, new)
            if re.fullmatch(r"\s+[\w.>-]+(<[^;= ]*>)?\([^;{}]*\);\s*", code):
                begin = at + len(code) - len(code.lstrip())
                yield Mutant(path, text, number, "statement dropped", begin, at + len(code.rstrip()), ";")
        at += len(line)


def _closing(text, at):
    """The parenthesis that closes one opened just before."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at - 1


def mutants_of(path):
    text = path.read_text()
    raw = text.encode()
    starts = [0, *accumulate(map(len, raw.splitlines(keepends=True)))]

    def place(line, column):
        return len(raw[: starts[line - 1] + column].decode())

    for node in parts(ast.parse(text)):
        if not hasattr(node, "lineno"):
            continue
        begin, end = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
        for kind, other in changes(node):
            new = ast.unparse(ast.fix_missing_locations(other))
            yield Mutant(path, text, node.lineno, kind, begin, end, f"({new})" if isinstance(node, ast.expr) else new)
        if isinstance(node, ast.If | ast.While):
            test = node.test
            begin, end = place(test.lineno, test.col_offset), place(test.end_lineno, test.end_col_offset)
            yield Mutant(path, text, test.lineno, "condition", begin, end, f"not ({text[begin:end]})")
        if isinstance(node, ast.For):
            last = node.body[-1]
            at = place(last.end_lineno, last.end_col_offset)
            yield Mutant(path, text, node.lineno, "first round only", at, at, "\n" + " " * last.col_offset + "break")


def explained(mutant):
    """Why nobody could notice, if somebody has said so."""
    name = str(mutant.path.relative_to(ROOT))
    lines = mutant.old.splitlines()
    return next((why for file, line, why in EQUIVALENT
                 if re.search(file, name) and re.search(line, lines[mutant.line - 1])), None)  # fmt: skip


def all_mutants(only=None):
    for target in TARGETS:
        place = ROOT / "src" / "meshnn" / target
        files = (*place.rglob("*.py"), *place.rglob("*.hpp"), *place.rglob("portable*.h"))
        for path in sorted(files) if place.is_dir() else [place] if place.exists() else []:
            if not only or any(str(path.relative_to(ROOT / "src" / "meshnn")).startswith(name) for name in only):
                yield from mutants_of(path) if path.suffix == ".py" else mutants_of_cpp(path)


def sample():
    """The mutants of `SAMPLE`."""
    found = list(all_mutants())
    for kind, line in SAMPLE:
        match = next((m for m in found if m.kind == kind and re.search(line, m.change()[0])), None)
        if match is None:
            sys.exit(f"no mutant of the kind {kind!r} on a line like {line!r}; put another one into SAMPLE")
        yield match


# -- running -----------------------------------------------------------------------------------------------------------


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (WORK, WORK))


class Copy:
    """A copy of the source in which one mutant at a time is tried."""

    def __init__(self, folder, number):
        self.folder = Path(folder) / f"copy{number}"
        shutil.copytree(ROOT / "src", self.folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "CMakeLists.txt", self.folder)

    def build(self):
        """Compile the core of this copy; whether that worked."""
        build = self.folder / "build"
        if not build.exists():
            core = self.folder / "src" / "meshnn"
            for path in core.glob("_core.*.so"):
                path.unlink()
            command = ["cmake", "-S", self.folder, "-B", build, f"-DPython_EXECUTABLE={sys.executable}",
                       f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={core}", "-DMESHNN_OPTIMIZE=-O1"]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True)
        return subprocess.run(["cmake", "--build", build], check=False, capture_output=True).returncode == 0

    def run(self, arguments):
        """Exit code of pytest, None if it took too long, and what it printed."""
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=first",
                   "-m", "not slow", "-k", "not scikit_learn", *arguments]  # fmt: skip
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, preexec_fn=limits,
        )  # fmt: skip
        try:
            text, _ = process.communicate(timeout=SECONDS)
            return process.returncode, text
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""

    def try_mutant(self, mutant):
        """Who killed it; "" if nobody did."""
        own = next((OTHERS[part] for part in reversed(mutant.path.parts) if part in OTHERS), None)
        names = own or (TRAINING if "training" in mutant.path.parts else NUMBERS)
        here = self.folder / mutant.path.relative_to(ROOT)
        source, compiled = mutant.source(), mutant.path.suffix != ".py"
        if not compiled:
            try:
                compile(source, str(here), "exec")
            except SyntaxError:
                return "not Python"
        here.write_text(source)
        try:
            if compiled and not self.build():
                return "not C++"
            code, text = self.run([str(next((ROOT / "tests").rglob(f"test_{name}.py"))) for name in names])
        finally:
            here.write_text(mutant.old)
            if compiled:
                self.build()
        if code is None or code == -signal.SIGKILL:
            return "time limit"
        if code == 0:
            return ""
        found = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
        return found[0] if found else f"exit code {code}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="of " + ", ".join(TARGETS))
    parser.add_argument("--kind", nargs="+", help='such as "arithmetic", "call", "range"')
    parser.add_argument("--sample", action="store_true", help="twelve that every test run must notice")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="show the mutants instead of trying them")
    parser.add_argument("--out", default="results/mutants.json")
    given = parser.parse_args()
    found = [m for m in all_mutants(given.only) if not given.kind or m.kind in given.kind]
    open_ = [m for m in found if explained(m) is None]
    chosen = list(sample()) if given.sample else random.Random(given.seed).sample(open_, min(given.count, len(open_)))
    print(f"{len(chosen)} of {len(open_)} mutants; {len(found) - len(open_)} more are explained", flush=True)
    if given.list:
        print(*chosen, sep="\n")
        return
    results, lock, begin = [], threading.Lock(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copies = [Copy(folder, k) for k in range(given.jobs)]

        def work(mutant):
            with lock:
                copy = copies.pop()
            started = time.monotonic()
            killer = copy.try_mutant(mutant)
            with lock:
                copies.append(copy)
                results.append((mutant, killer))
                seconds = time.monotonic() - started
                print(f"{len(results):>3}/{len(chosen)} {seconds:4.0f} s  {killer or 'SURVIVED'}  "
                      f"{mutant if not killer else str(mutant).splitlines()[0]}", flush=True)  # fmt: skip

        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(work, chosen))
    survivors = [mutant for mutant, killer in results if not killer]
    report = {
        "tried": len(results), "killed": len(results) - len(survivors), "seed": given.seed,
        "survivors": [
            {"file": str(m.path.relative_to(ROOT)), "line": m.line, "kind": m.kind,
             "before": m.change()[0], "after": m.change()[1]} for m in survivors
        ],
    }  # fmt: skip
    Path(given.out).parent.mkdir(parents=True, exist_ok=True)
    Path(given.out).write_text(json.dumps(report, indent=2) + "\n")
    print(f"{report['killed']} of {report['tried']} killed in {time.monotonic() - begin:.0f} s; see {given.out}")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
