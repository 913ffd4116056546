"""Write folders of Parquet files and run commands on them."""

import json

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from commands import meshnn

FAST = ("--max-epochs", "1", "--l2", "0", "--hidden", "2", "--solver", "adam")


def table(rows=1200, seed=0, **more):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 2))
    return pa.table({"a": X[:, 0], "b": X[:, 1].astype(np.float32), "y": X[:, 0] * X[:, 1]} | more)


def with_column(found, name, values):
    return found.set_column(found.column_names.index(name), name, pa.array(values))


def write(folder, tables, **options):
    folder.mkdir()
    for k, part in enumerate(tables):
        parquet.write_table(part, folder / f"part{k}.parquet", **({"row_group_size": 500} | options))
    return folder


def fitted(data, *options, target="y"):
    done = meshnn("fit", data, "--target", target, *FAST, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*arguments):
    """Return the one-line error of a command; notes may precede it."""
    done = meshnn(*arguments)
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("meshnn: ")]
    assert len(lines) == 1
    assert "Traceback" not in done.stderr
    assert "a bug" not in lines[0]
    return lines[0]


def nan_late(found):
    values = found["b"].to_numpy().copy()
    values[1000] = np.nan
    return with_column(found, "b", values)
