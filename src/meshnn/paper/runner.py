"""Runs missing trials, here, in other processes or on other machines, saves each, then makes tables and figures.

The numbers of an experiment are in one JSON file, `results.json`, rewritten after every trial.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from meshnn.arguments import known
from meshnn.cli.output import versions
from meshnn.errors import MeshError
from meshnn.files import Lock, explained, finite, write_whole
from meshnn.paper import classification, equivalence, images
from meshnn.paper.experiment import Experiment, Figure, PaperTable, Parameters, Record, TrialOptions, key_of, markdown

#: All experiments by name, in the order of the paper.
EXPERIMENTS: dict[str, Experiment] = {
    one.name: one for one in (equivalence.EXPERIMENT, *classification.EXPERIMENTS, *images.EXPERIMENTS)
}


class Outcome(NamedTuple):
    """The results of a run."""

    folder: Path
    tables: list[PaperTable]
    figures: list[Figure]


def run(
    experiment: Experiment,
    options: TrialOptions,
    out: Path,
    jobs: int = 1,
    backend: str = "loky",
    tell: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> Outcome:
    """Run the missing trials, saving each; then make tables and figures from the saved results.

    Parameters
    ----------
    experiment, options : Experiment, TrialOptions
    out : Path
        The folder of all experiments.
    jobs : int
        Trials at a time.
    backend : str
        Of joblib: "loky" (processes), "threading", "dask" or "ray"; the last two may be followed by a colon and the
        address of a cluster.
    tell : function of (trials done, trials in all, what was done), optional
    """
    trials = options.trials or (experiment.quick_trials if options.quick else experiment.trials)
    options = replace(options, trials=trials)
    _parse_backend(backend)
    for name, extra in {"matplotlib": "plots", **dict.fromkeys(experiment.needs, "torch")}.items():
        if find_spec(name) is None:
            raise MeshError(f"reproduce {experiment.name} needs {name}; pip install 'meshnn[{extra}]'")
    folder = out / (experiment.name if options.protocol == "ours" else f"{experiment.name}-{options.protocol}")
    with locked(folder):
        planned = {key_of(parameters): parameters for parameters in experiment.plan(options)}
        results = _Results(folder, experiment, options, list(planned))
        missing = [parameters for key, parameters in planned.items() if key not in results.records]
        done = len(planned) - len(missing)
        tell(done, len(planned), "")
        if missing and experiment.prepare is not None:
            experiment.prepare(options, lambda text: tell(done, len(planned), text))
        for record in _records(experiment, options, missing, jobs, backend):
            results.records[record["key"]] = record | {"git": results.header["git"]}
            results.save()
            done += 1
            tell(done, len(planned), record["key"])
        # as planned; those of earlier runs with more trials come last
        results.records = {key: results.records[key] for key in planned} | results.records
        results.save()
        # from the file, which must hold all that is needed
        return _conclude(experiment, folder, planned_records(read_results(results.path)) or [])


def _conclude(experiment: Experiment, folder: Path, records: list[Record]) -> Outcome:
    """Write tables and figures of saved records."""
    tables = tables_of(experiment, records, folder)
    write_text(folder / "table.md", markdown(tables))
    figures = experiment.draw(records, folder)
    listed = [{"file": figure.path.name, "caption": figure.caption} for figure in figures]
    write_text(folder / "figures.json", json.dumps(listed, indent=1) + "\n")
    return Outcome(folder, tables, figures)


# -- trials --------------------------------------------------------------------------------------------------------


def _records(
    experiment: Experiment, options: TrialOptions, trials: list[Parameters], jobs: int, backend: str
) -> Iterator[Record]:
    """Yield the records of trials, each as soon as it is done."""
    if not trials or (jobs == 1 and backend == "loky"):
        for parameters in trials:
            yield _trial(experiment, options, parameters)
        return
    from joblib import Parallel, delayed, parallel_config

    name, address = _parse_backend(backend)
    if name == "ray":
        _start_ray(address)
    cluster = _dask_client(address, jobs) if name == "dask" else nullcontext()
    with cluster, parallel_config(backend=name, n_jobs=jobs), warnings.catch_warnings():
        # it only says that processes that use much memory are replaced
        warnings.filterwarnings("ignore", "A worker stopped while some jobs")
        # unordered: a slow trial does not delay the saving of others
        parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
        yield from parallel(delayed(_trial)(experiment, options, parameters) for parameters in trials)


def _trial(experiment: Experiment, options: TrialOptions, parameters: Parameters) -> Record:
    key, began = key_of(parameters), time.perf_counter()
    try:
        numbers = experiment.run(parameters, options)
    except MeshError as error:
        raise MeshError(f"{experiment.name}, trial {key}: {error}") from None
    seconds = round(time.perf_counter() - began, 4)
    return {"key": key, "parameters": parameters, "numbers": numbers, "seconds": seconds}


def _parse_backend(backend: str) -> tuple[str, str]:
    """Return name and address of a backend."""
    name, _, address = backend.partition(":")
    known("backend", name, ("loky", "threading", "dask", "ray"))
    if address and name not in ("dask", "ray"):
        raise MeshError(f"backend {name} has no address, got {backend!r}; leave out the part after the colon")
    return name, address


def _dask_client(address: str, jobs: int) -> Any:
    try:
        import distributed

        client: Any = distributed.Client  # it has no types
        if address:
            return client(address, set_as_default=True)
        return client(n_workers=jobs, threads_per_worker=1, dashboard_address=None, set_as_default=True)
    except ImportError:
        raise MeshError("--backend dask needs dask.distributed; pip install 'dask[distributed]'") from None
    except (OSError, ValueError) as error:
        raise MeshError(f"cannot reach the Dask cluster {address}: {error}; check the address") from None


def _start_ray(address: str) -> None:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise MeshError("--backend ray needs Ray; pip install ray") from None
    ray.init(address=address or None, ignore_reinit_error=True)
    register_ray()


# -- results -------------------------------------------------------------------------------------------------------


class _Results:
    """Results in `folder/results.json`; existing ones of the same experiment are kept."""

    def __init__(self, folder: Path, experiment: Experiment, options: TrialOptions, planned: list[str]) -> None:
        self.path = folder / "results.json"
        self.records: dict[str, Record] = {}  # by the key of their trial
        config = {"seed": options.seed, "protocol": options.protocol, "quick": options.quick}
        self.header: dict[str, Any] = {
            "format": 1, "experiment": experiment.name, "version": experiment.version, "config": config,
        }  # fmt: skip
        if self.path.exists():
            stored = read_results(self.path)
            for name in ("experiment", "version", "config"):
                was, now = _as_text(stored.get(name)), _as_text(self.header[name])
                if was != now:
                    raise MeshError(
                        f"{self.path} holds results of another run ({name} {was}, now {now}); "
                        "choose another --out or delete it"
                    )
            self.records = {record["key"]: record for record in stored["trials"]}
        self.header |= {"versions": versions(), "machine": _machine(), "git": revision(), "planned": planned}

    def save(self) -> None:
        document = self.header | {"trials": list(self.records.values())}
        write_text(self.path, json.dumps(finite(document), indent=1, allow_nan=False) + "\n")


def read_results(path: Path) -> dict[str, Any]:
    """Return the contents of a results file; raise an error that names it if it is damaged."""
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise MeshError(f"cannot read {path} ({error}); delete it to start anew") from None
    if not isinstance(stored, dict) or stored.get("format") != 1 or not isinstance(stored.get("trials"), list):
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


def _machine() -> dict[str, Any]:
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
        head, changed = (
            subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no", "--", "."))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head.strip() + ("+" if changed.strip() else "")
