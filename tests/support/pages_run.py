"""Run the code blocks of a page and compare their output: `python tests/support/pages_run.py PAGE ...`.

`python` blocks share one namespace, `bash` blocks run in a shell with the `meshnn` command; a `text` block directly
below shows the output. Numbers are masked in the comparison, and a line `...` stands for any lines.
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import chdir, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.M | re.S)
_NUMBER = re.compile(r"-?(?:\d[\d,_]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")


def masked(text: str) -> list[str]:
    """Return the lines of an output without numbers, trailing blanks and empty lines."""
    return [" ".join(_NUMBER.sub("#", line).split()) for line in text.strip().splitlines() if line.strip()]


def agrees(shown: str, real: str) -> bool:
    """Return whether an output equals the one on the page."""
    pattern = "\n".join(r".*(?:\n.*)*" if line == "..." else re.escape(line) for line in masked(shown))
    return re.fullmatch(pattern, "\n".join(masked(real))) is not None


def updated(shown: str, real: str) -> str:
    """Return the output on a page with the numbers of the real one; lines `...` stay."""
    lines, place, found = real.strip("\n").splitlines(), 0, []
    for part in re.split(r"^\.\.\.\n?", shown, flags=re.M):
        wanted = masked(part)
        while masked("\n".join(lines[place : place + part.count("\n")])) != wanted:
            place += 1
            if place > len(lines):
                raise ValueError(f"{part!r} is not in the output")
        found.append("".join(f"{line.rstrip()}\n" for line in lines[place : place + part.count("\n")]))
        place += part.count("\n")
    return "...\n".join(found)


def run_page(page: Path, folder: Path, *, show: bool = False, write: bool = False) -> list[str]:
    """Run all blocks of a page in a folder with the examples; return one text per difference.

    With `write`, the numbers of all outputs on the page are replaced by the real ones.
    """
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__page__"}
    wrong, new = [], text
    with chdir(folder):
        for block in BLOCK.finditer(text):
            kind, code, shown = block.groups()
            place = f"{page.name}:{text.count(chr(10), 0, block.start()) + 1}"
            real = _run_python(code, names, place) if kind == "python" else _run_bash(code, place)
            if show:
                print(f"--- {place}\n{real}", end="")
            if shown is not None and not agrees(shown, real):
                wrong.append(f"{place} prints\n{real}where the page shows\n{shown}")
            elif shown is not None:
                new = new.replace(block[0], block[0].replace(shown, updated(shown, real)))
    if write and new != text:
        page.write_text(new, encoding="utf-8")
    return wrong


def _run_python(code: str, names: dict[str, object], place: str) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("default")
        exec(compile(code, place, "exec"), names)
    return printed.getvalue()


def _run_bash(code: str, place: str) -> str:
    found = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-e", "-c", code], env=found, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{place} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    """Run the pages that are given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--show", action="store_true", help="print the real output of every block")
    parser.add_argument("--write", action="store_true", help="write the numbers of the real outputs to the pages")
    given = parser.parse_args()
    wrong = []
    for page in given.pages:
        with tempfile.TemporaryDirectory() as folder:
            wrong += run_page(page.resolve(), Path(folder), show=given.show, write=given.write)
    print(*wrong, sep="\n")
    print(f"{len(wrong)} differences in {len(given.pages)} pages")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
