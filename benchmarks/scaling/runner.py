"""Run the missing points, each in a process with limits of memory and time; every result is a file."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from meshnn import _core
from meshnn.files import Lock, explained, write_whole
from meshnn.memory import available_memory
from scaling.point import prediction_file
from scaling.study import NEEDS, Point

__all__ = ["ENDS", "Limits", "missing_peers", "processor", "read_records", "run"]

Record = dict[str, Any]
Report = Callable[[int, int, str], None]
#: Statuses after which larger nets of the sweep are skipped.
ENDS = ("did not fit", "too slow", "not tried")
#: Seconds between two readings of the memory of a process.
LOOK = 0.01
#: One thread for all, and no preallocated memory.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Limits of a process."""

    seconds: float
    bytes: int

    @classmethod
    def of(cls, seconds: float, gibibytes: float) -> Limits:
        """Return limits with at most 70% of the available memory."""
        return cls(seconds, int(min(gibibytes * 2**30, 0.7 * available_memory())))


def processor() -> str:
    """Return the name of the processor."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "Model")))
    return platform.processor() or platform.machine()


def missing_peers(contestants: Sequence[str]) -> dict[str, str]:
    """Return the contestants whose library is not installed, with the command to install it."""
    return {name: NEEDS[name][1] for name in contestants if name in NEEDS and find_spec(NEEDS[name][0]) is None}


def stamp_of(contestant: str) -> str:
    """Return the validity of a timing: the processor, and the sources of meshnn or the version of a library."""
    if contestant not in NEEDS:
        package = Path(_core.__file__).parent
        sources = [path for folder in ("engine", "plan") for path in sorted((package / folder).glob("*.py"))]
        found = hashlib.sha256()
        for path in (Path(_core.__file__), package / "paper" / "tensor.py", *sources):
            found.update(path.read_bytes())
        return f"{processor()}, sources {found.hexdigest()[:12]}"
    library = NEEDS[contestant][0]
    with suppress(PackageNotFoundError):
        return f"{processor()}, {library} {version('scikit-learn' if library == 'sklearn' else library)}"
    return processor()


def read_records(out: Path, points: Sequence[Point]) -> dict[str, Record]:
    """Return the saved records by key; damaged files and timings of other sources are ignored."""
    stamps = {point.contestant: stamp_of(point.contestant) for point in points}
    found: dict[str, Record] = {}
    for point in points:
        with suppress(OSError, ValueError, TypeError, KeyError):
            record = json.loads(_file(out, point).read_text())
            if record["stamp"] == stamps[point.contestant] and record["status"] in (*ENDS, "done", "failed"):
                found[point.key] = record
    return found


def run(points: Sequence[Point], out: Path, limits: Limits, report: Report = lambda *_: None) -> dict[str, Record]:
    """Run the missing points, one process at a time; return all records by key."""
    with explained("write to", str(out)):
        (out / "points").mkdir(parents=True, exist_ok=True)
    lock = Lock(out / "study")
    try:
        records = read_records(out, points)
        absent = missing_peers([point.contestant for point in points])
        over: dict[tuple[str, str], float] = {}
        for done, point in enumerate(points):
            report(done, len(points), point.key)
            line = (point.sweep, point.contestant)
            record = records.get(point.key)
            if point.contestant in absent:
                record = {"status": "missing", "note": absent[point.contestant]}
            elif line in over:
                record = {"status": "not tried", "note": f"{over[line]:g} exceeded a limit"}
            elif record is None or (record["status"] == "not tried"):
                record = _measure(point, out, limits)
                write_whole(_file(out, point), [(json.dumps(record, indent=1) + "\n").encode()])
            if record["status"] in ENDS:
                over.setdefault(line, point.x)
            records[point.key] = record | {"point": asdict(point)}
        report(len(points), len(points), "")
        return records
    finally:
        lock.release()


def _file(out: Path, point: Point) -> Path:
    return out / "points" / f"{point.key}.json"


def _measure(point: Point, out: Path, limits: Limits) -> Record:
    """Return the record of a point: the result of its process, or the reason for ending it."""
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "point.json", Path(folder) / "result.json"
        given.write_text(json.dumps(asdict(point)))
        command = [sys.executable, "-m", "scaling.point", str(given), str(result)]
        began = time.monotonic()
        end, complaint = _watch(command, limits)
        record: Record = {}
        if end:
            with suppress(OSError, ValueError):
                record = json.loads(prediction_file(result).read_text())
            record |= {"status": end[0], "note": end[1]}
        else:
            try:
                record = json.loads(result.read_text())
            except (OSError, ValueError):  # killed by the system, mostly for lack of memory
                record = {"status": "failed", "note": complaint[-300:] or "the process ended without a result"}
            if record["status"] != "done":
                with suppress(OSError, ValueError):
                    record = json.loads(prediction_file(result).read_text()) | record
    return record | {
        "key": point.key, "point": asdict(point), "stamp": stamp_of(point.contestant),
        "limits": asdict(limits), "process": round(time.monotonic() - began, 2),
    }  # fmt: skip


def _watch(command: list[str], limits: Limits) -> tuple[tuple[str, str] | None, str]:
    """Wait for a process; return the reason for ending it, if any, and its stderr."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, env=os.environ | ONE_THREAD, cwd=Path(__file__).parents[1],
            stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
        began, end = time.monotonic(), None
        try:
            while process.poll() is None:
                if time.monotonic() - began > limits.seconds:
                    end = ("too slow", f"more than {limits.seconds:g} s in its process")
                elif _resident(process.pid) > limits.bytes:
                    end = ("did not fit", f"more than {limits.bytes / 2**30:.1f} GiB")
                if end is not None:
                    break
                time.sleep(LOOK)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        if end is None and process.returncode == -9:
            end = ("did not fit", "ended by the system")
        errors.seek(0)
        return end, errors.read().decode(errors="replace").strip()


def _resident(pid: int) -> int:
    """Return the resident memory of a process in bytes, 0 if it is unknown."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
