"""Topologies in files: JSON, GraphML and matrices."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.errors import TopologyError
from meshnn.topology.topology import Topology

__all__ = ["check_topology", "read_topology"]


def read_topology(path: str | os.PathLike[str], n_inputs: int, n_outputs: int) -> Topology:
    """Return the graph in a file.

    * `.json`: written by `json.dump(topology.to_dict(), file)`.
    * `.graphml`: a directed graph whose nodes have the attribute `role`: input, bias, hidden or output. The neurons of
      each role have the order of the file. `nx.write_graphml(topology.to_networkx(), path)` writes one.
    * `.npz`: a square matrix, A[i, j] the edge from i to j; the first `n_inputs` rows are the features, the last
      `n_outputs` the outputs. It has no bias neuron unless the file contains `bias=True` beside `A`.

    Raises
    ------
    TopologyError
        If the file cannot be read as one of these.
    """
    file = Path(path)
    check_topology(file)
    readers = {".json": _from_json, ".graphml": _from_graphml, ".npz": _from_npz}
    try:
        return readers[file.suffix.lower()](file, n_inputs, n_outputs)
    except TopologyError as error:
        raise TopologyError(f"{file.name}: {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError, zipfile.BadZipFile, EOFError, ImportError) as error:
        what = _first_line(error)
        if "pickle" in what:  # the message of NumPy recommends loading the objects, which would run code
            what = "it holds Python objects, which are never loaded; save arrays of numbers"
        raise TopologyError(f"{file.name} does not hold a graph: {what}") from None
    except OSError as error:
        raise TopologyError(f"cannot read {file}: {error.strerror or _first_line(error)}") from None


def check_topology(file: Path) -> None:
    """Raise an error if the file is missing or has an unknown ending, without reading it."""
    if not file.is_file():
        raise TopologyError(f"there is no file {file}; check the path")
    if file.suffix.lower() not in (".json", ".graphml", ".npz"):
        raise TopologyError(
            f"cannot read a topology from {file.name}; the endings that work are .json (Topology.to_dict), .graphml "
            "(nodes with a role) and .npz (scipy.sparse.save_npz, or an array A)"
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _from_json(file: Path, n_inputs: int, n_outputs: int) -> Topology:
    return Topology.from_dict(json.loads(file.read_text(encoding="utf-8")))


def _from_graphml(file: Path, n_inputs: int, n_outputs: int) -> Topology:
    from meshnn.integrations.networkx import read_graphml

    graph = read_graphml(str(file))
    unknown = {str(role) for _, role in graph.nodes(data="role")} - {"input", "bias", "hidden", "output"}
    if unknown:
        raise TopologyError(f"the role of a node is input, bias, hidden or output; got {sorted(unknown)[:4]}")
    return Topology.from_networkx(graph)


def _from_npz(file: Path, n_inputs: int, n_outputs: int) -> Topology:
    if not zipfile.is_zipfile(file):
        raise TopologyError("this is not an .npz file; write it with np.savez(path, A=A) or scipy.sparse.save_npz")
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as content:
        if "format" in content.files:
            from scipy import sparse

            return Topology.from_adjacency(sparse.load_npz(file), n_inputs, n_outputs)
        names = [name for name in content.files if name != "bias"]
        if "A" not in names and len(names) != 1:
            raise TopologyError(f"expected one matrix or one named A, got the arrays {names}")
        A: Any = content["A" if "A" in names else names[0]]
        bias = bool(content["bias"]) if "bias" in content.files else False
    return Topology.from_adjacency(A, n_inputs, n_outputs, bias=bias)
