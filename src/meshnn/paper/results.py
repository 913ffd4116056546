"""`Results`: the numbers of an experiment in one JSON file, rewritten after every trial."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from meshnn.cli.output import versions
from meshnn.errors import MeshError
from meshnn.files import Lock, explained, finite, write_whole
from meshnn.paper.experiment import Experiment, PaperTable, Record, TrialOptions

__all__ = ["Results", "locked", "planned_records", "read_results", "tables_of", "write_text"]

FORMAT = 1


class Results:
    """Results in `folder/results.json`; existing ones of the same experiment are kept.

    Attributes
    ----------
    records : dict of str: Record
        By the key of their trial.
    """

    def __init__(self, folder: Path, experiment: Experiment, options: TrialOptions, planned: list[str]) -> None:
        self.path = folder / "results.json"
        self.header: dict[str, Any] = {
            "format": FORMAT,
            "experiment": experiment.name,
            "version": experiment.version,
            "config": {"seed": options.seed, "protocol": options.protocol, "quick": options.quick},
        }
        self.records: dict[str, Record] = {}
        if self.path.exists():
            self._continue()
        self.header |= {"versions": versions(), "machine": machine(), "git": revision(), "planned": planned}

    def _continue(self) -> None:
        stored = read_results(self.path)
        for name in ("experiment", "version", "config"):
            was, now = _as_text(stored.get(name)), _as_text(self.header[name])
            if was != now:
                raise MeshError(
                    f"{self.path} holds results of another run ({name} {was}, now {now}); "
                    "choose another --out or delete it"
                )
        self.records = {record["key"]: record for record in stored["trials"]}

    def add(self, record: Record) -> None:
        """Add a trial and save it."""
        self.records[record["key"]] = record | {"git": self.header["git"]}
        self.save()

    def order(self) -> None:
        """Sort the trials as planned; those of earlier runs with more trials come last."""
        self.records = {key: self.records[key] for key in self.header["planned"]} | self.records
        self.save()

    def save(self) -> None:
        """Write the file; readers see either the old or the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        document = self.header | {"trials": list(self.records.values())}
        write_text(self.path, json.dumps(finite(document), indent=1, allow_nan=False) + "\n")


def read_results(path: Path) -> dict[str, Any]:
    """Return the contents of a results file; raise an error that names it if it is damaged."""
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise MeshError(f"cannot read {path} ({error}); delete it to start anew") from None
    if not isinstance(stored, dict) or stored.get("format") != FORMAT or not isinstance(stored.get("trials"), list):
        raise MeshError(f"{path} is not a results file of this version; choose another --out or delete it")
    wanted: dict[str, Any] = {"key": str, "parameters": dict, "numbers": dict, "seconds": (int, float)}
    for k, record in enumerate(stored["trials"]):
        if not isinstance(record, dict) or not all(isinstance(record.get(n), kind) for n, kind in wanted.items()):
            raise MeshError(f"trial {k} in {path} is damaged; delete the file to start anew")
    for name in ("config", "versions", "machine"):
        if not isinstance(stored.get(name), dict):
            raise MeshError(f"{path} lacks its {name}; delete the file to start anew")
    return stored


def planned_records(stored: dict[str, Any]) -> list[Record] | None:
    """Return the planned trials of the last run, in order; None if some are missing."""
    records = {record["key"]: record for record in stored["trials"]}
    keys = stored.get("planned")
    if not isinstance(keys, list) or not keys or any(key not in records for key in keys):
        return None
    return [records[key] for key in keys]


def tables_of(experiment: Experiment, records: list[Record], folder: Path) -> list[PaperTable]:
    """Return the tables; raise an error that names the file if its numbers are not those of the experiment."""
    try:
        return experiment.tables(records)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise MeshError(f"{folder / 'results.json'} is damaged ({what}); delete it to start anew") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder: a second run there would overwrite the results of the first."""
    with explained("write", f"{folder}, the folder of --out"):
        folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder / "results.json")
    try:
        yield
    finally:
        lock.release()


def _as_text(value: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_whole(path, [text.encode()])


def machine() -> dict[str, Any]:
    """Return platform, processor and cores."""
    processor = platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), processor)
    return {"platform": platform.platform(), "processor": processor, "cores": os.cpu_count()}


def revision() -> str | None:
    """Return the git revision of this source, if there is one; with a + if files were changed."""
    folder = Path(__file__).parent
    if not any((parent / ".git").exists() for parent in folder.parents[:4]):
        return None
    try:
        found = [
            subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no", "--", "."))
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return found[0].strip() + ("+" if found[1].strip() else "")
