"""Run missing trials, locally or in other processes, save each, then write tables and figures.

The results of an experiment are in one JSON file, `results.json`, which is written again after every trial.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from meshnn.cli.output import versions
from meshnn.errors import MeshError
from meshnn.files import Lock, explained, finite, write_whole
from meshnn.paper import classification, equivalence, images
from meshnn.paper.experiment import Experiment, Figure, Json, PaperTable, TrialOptions, key_of, markdown

#: All experiments by name, in the order of the paper.
EXPERIMENTS: dict[str, Experiment] = {
    one.name: one for one in (equivalence.experiment, *classification.experiments, *images.experiments)
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
    report: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> Outcome:
    """Run and save the missing trials; then write tables and figures from the saved results.

    Parameters
    ----------
    experiment, options : Experiment, TrialOptions
    out : Path
        The folder of all experiments.
    jobs : int
        Parallel trials, in processes of joblib.
    report : callable with (trials done, number of trials, text), optional
    """
    trials = options.trials or (experiment.quick_trials if options.quick else experiment.trials)
    options = replace(options, trials=trials)
    for name, extra in {"matplotlib": "plots", **dict.fromkeys(experiment.needs, "torch")}.items():
        if find_spec(name) is None:
            raise MeshError(f"reproduce {experiment.name} needs {name}; pip install 'meshnn[{extra}]'")
    folder = out / (experiment.name if options.protocol == "ours" else f"{experiment.name}-{options.protocol}")
    path = folder / "results.json"
    with locked(folder):
        planned = {key_of(parameters): parameters for parameters in experiment.plan(options)}
        header = _header(experiment, options)
        records = _stored_records(path, header)
        header |= {"versions": versions(), "machine": _machine(), "git": revision(), "planned": list(planned)}
        missing = [parameters for key, parameters in planned.items() if key not in records]
        done = len(planned) - len(missing)
        report(done, len(planned), "")
        if missing and experiment.prepare is not None:
            experiment.prepare(options, lambda text: report(done, len(planned), text))
        for record in _run_trials(experiment, options, missing, jobs):
            records[record["key"]] = record | {"git": header["git"]}
            _save(path, header, records)
            done += 1
            report(done, len(planned), record["key"])
        # in the planned order; additional trials of earlier runs come last
        _save(path, header, {key: records[key] for key in planned} | records)
        # read the file, to test that it is complete
        return _conclude(experiment, folder, planned_records(read_results(path)) or [])


def _conclude(experiment: Experiment, folder: Path, records: list[Json]) -> Outcome:
    """Write tables and figures from saved records."""
    tables = tables_of(experiment, records, folder)
    write_whole(folder / "table.md", [markdown(tables).encode()])
    figures = experiment.draw(records, folder)
    listed = [{"file": figure.path.name, "caption": figure.caption} for figure in figures]
    write_whole(folder / "figures.json", [json.dumps(listed, indent=1).encode()])
    return Outcome(folder, tables, figures)


# -- trials --------------------------------------------------------------------------------------------------------


def _run_trials(experiment: Experiment, options: TrialOptions, trials: list[Json], jobs: int) -> Iterator[Json]:
    """Yield the record of each trial as soon as it is done."""
    from joblib import Parallel, delayed

    with warnings.catch_warnings():
        # the warning reports that processes that use much memory are replaced
        warnings.filterwarnings("ignore", "A worker stopped while some jobs")
        # unordered: a slow trial does not delay the saving of others
        parallel = Parallel(jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
        yield from parallel(delayed(_trial)(experiment, options, parameters) for parameters in trials)


def _trial(experiment: Experiment, options: TrialOptions, parameters: Json) -> Json:
    key, began = key_of(parameters), time.perf_counter()
    try:
        numbers = experiment.run(parameters, options)
    except MeshError as error:
        raise MeshError(f"{experiment.name}, trial {key}: {error}") from None
    seconds = round(time.perf_counter() - began, 4)
    return {"key": key, "parameters": parameters, "numbers": numbers, "seconds": seconds}


# -- results -------------------------------------------------------------------------------------------------------


def _header(experiment: Experiment, options: TrialOptions) -> Json:
    """Return the fields that must be equal for results to belong to the same run."""
    config = {"seed": options.seed, "protocol": options.protocol, "quick": options.quick}
    return {"format": 1, "experiment": experiment.name, "version": experiment.version, "config": config}


def _stored_records(path: Path, header: Json) -> dict[str, Json]:
    """Return existing records by key; raise an error if they belong to another run."""
    if not path.exists():
        return {}
    stored = read_results(path)
    for name, now in header.items():
        if stored.get(name) != now:
            raise MeshError(
                f"{path} holds results of another run ({name} {stored.get(name)}, now {now}); "
                "choose another --out or delete it"
            )
    return {record["key"]: record for record in stored["trials"]}


def _save(path: Path, header: Json, records: dict[str, Json]) -> None:
    document = header | {"trials": list(records.values())}
    write_whole(path, [json.dumps(finite(document), indent=1, allow_nan=False).encode()])


def read_results(path: Path) -> Json:
    """Return the contents of a results file; raise an error that names it if it is damaged."""
    try:
        stored = json.loads(path.read_text())
        kinds = {"format": int, "trials": list, "config": dict, "versions": dict, "machine": dict}
        wrong = [name for name, kind in kinds.items() if not isinstance(stored[name], kind)]
        wanted: Json = {"key": str, "parameters": dict, "numbers": dict, "seconds": (int, float)}
        for k, record in enumerate(stored["trials"]):
            if not all(isinstance(record[name], kind) for name, kind in wanted.items()):
                wrong.append(f"trial {k}")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise MeshError(f"cannot read {path} ({type(error).__name__}: {error}); delete it to start again") from None
    if wrong:
        raise MeshError(f"cannot read {path} (wrong: {', '.join(wrong)}); delete it to start again")
    return dict(stored)


def planned_records(stored: Json) -> list[Json] | None:
    """Return the planned trials of the last run, in order; None if some are missing."""
    records = {record["key"]: record for record in stored["trials"]}
    keys = stored.get("planned")
    if not isinstance(keys, list) or not keys or any(key not in records for key in keys):
        return None
    return [records[key] for key in keys]


def tables_of(experiment: Experiment, records: list[Json], folder: Path) -> list[PaperTable]:
    """Return the tables; raise an error that names the file if its numbers are not those of the experiment."""
    try:
        return experiment.tables(records)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise MeshError(f"{folder / 'results.json'} is damaged ({what}); delete it to start again") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, because a second run would overwrite the results of the first."""
    with explained("write", f"{folder}, the folder of --out"):
        folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder / "results.json")
    try:
        yield
    finally:
        lock.release()


def _machine() -> Json:
    processor = platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), processor)
    return {"platform": platform.platform(), "processor": processor, "cores": os.cpu_count()}


def revision() -> str | None:
    """Return the git revision of the source, with a + if files were changed; None without a repository."""
    folder = Path(__file__).parent
    if not any((parent / ".git").exists() for parent in folder.parents[:4]):
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
