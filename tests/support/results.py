"""Read results of experiments from files, and write image files."""

import json

import numpy as np


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def numbers_of(folder):
    """Return the results by trial, without values that differ between runs."""
    return {
        record["key"]: {k: v for k, v in record["numbers"].items() if k != "seconds"}
        for record in results_of(folder)["trials"]
    }


def idx(array):
    """Return an IDX file of bytes."""
    array = np.asarray(array, np.uint8)
    return bytes([0, 0, 8, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape) + array.tobytes()
