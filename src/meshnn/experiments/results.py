"""`Results`: the numbers of an experiment in one JSON file, written anew after every trial."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import uuid
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from meshnn.errors import MeshError
from meshnn.experiments.experiment import Experiment, Options, Record

__all__ = ["Results", "read_results", "write_text"]

FORMAT = 1


class Results:
    """Results in `folder/results.json`; those that are there already are kept if they belong to the same experiment.

    Attributes
    ----------
    records : dict of str: Record
        By the key of their trial.
    """

    def __init__(self, folder: Path, experiment: Experiment, options: Options) -> None:
        self.path = folder / "results.json"
        self.header: dict[str, Any] = {
            "format": FORMAT,
            "experiment": experiment.name,
            "version": experiment.version,
            "config": options.identity(),
        }
        self.records: dict[str, Record] = {}
        if self.path.exists():
            self._take_up()
        self.header |= {"versions": versions(), "machine": machine(), "git": revision()}

    def _take_up(self) -> None:
        stored = read_results(self.path)
        for name, now in (("version", self.header["version"]), ("config", self.header["config"])):
            if stored.get(name) != now:
                raise MeshError(
                    f"{self.path} holds results of another run ({name} {stored.get(name)}, now {now}); "
                    "choose another --out or delete it"
                )
        self.records = {record["key"]: record for record in stored["trials"]}

    def add(self, record: Record) -> None:
        """Keep the numbers of one more trial, on disk too."""
        self.records[record["key"]] = record | {"git": self.header["git"]}
        self.save()

    def order(self, keys: list[str]) -> None:
        """Trials as planned, whichever was done first; those of earlier runs with more trials stay behind them."""
        rest = [key for key in self.records if key not in set(keys)]
        self.records = {key: self.records[key] for key in (*keys, *rest)}
        self.save()

    def save(self) -> None:
        """Write the file; a reader sees the old one or the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        document = self.header | {"trials": list(self.records.values())}
        write_text(self.path, json.dumps(finite(document), indent=1, allow_nan=False) + "\n")


def read_results(path: Path) -> dict[str, Any]:
    """What a results file holds, or an error that names it."""
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise MeshError(f"cannot read {path} ({error}); delete it to start anew") from None
    if not isinstance(stored, dict) or stored.get("format") != FORMAT or not isinstance(stored.get("trials"), list):
        raise MeshError(f"{path} is not a results file of this version; choose another --out or delete it")
    return stored


def finite(value: Any) -> Any:
    """The same with None for numbers that are not finite, which JSON does not know."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_text(path: Path, text: str) -> None:
    """Write beside and rename; `text` is on disk when this returns."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(beside, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise MeshError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def versions() -> dict[str, str | None]:
    """Of what took part."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("meshnn", "numpy", "scipy", "numba", "scikit-learn", "torch", "matplotlib"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def machine() -> dict[str, Any]:
    """Where it ran."""
    processor = platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), processor)
    return {"platform": platform.platform(), "processor": processor, "cores": os.cpu_count()}


def revision() -> str | None:
    """The revision of this source, if it lies in a git checkout; with a + if files differ from it."""
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
