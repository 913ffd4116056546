"""A table with all kinds of cells for `meshnn stream`, and the same predictions in plain Python."""

import csv
import gzip
import io
import json

import numpy as np

from commands import meshnn
from meshnn import MeshStreamClassifier

QUIET = ("--quiet", "--no-picture")
NAMES = ["t", "a", "b", "colour", "late", "kind", "amount"]
COMMON = ("--drop", "t")
OPTIONS = {"kind": ("-y", "kind", *COMMON, "--drop", "amount", "-n", "3", "--window", "50"),
           "amount": ("-y", "amount", *COMMON, "--drop", "kind", "-n", "3", "--window", "50")}  # fmt: skip


def make_rows(count=300, seed=0):
    """Return numbers, text and missing values; a level, a class and the first value of a column appear late."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(count):
        a, b = rng.standard_normal(2).tolist()
        colour = (
            ["red", "blue"][int(rng.integers(2))] if k < 150 else ["red", "blue", "dark, green"][int(rng.integers(3))]
        )
        late = "" if k < 100 else f"{rng.standard_normal():.4f}"
        kind = "up" if a + (colour == "red") > 0.5 else "down"
        if k > 200 and b > 1:
            kind = "odd"
        cells = [f"{k}", f"{a:.4f}", f"{b:.3e}", colour, late, kind, f"{2 * a - b + (colour == 'blue'):.5f}"]
        if rng.random() < 0.1:
            cells[2] = "NA"
        if rng.random() < 0.05:
            cells[3] = ""
        if rng.random() < 0.1 and k > 5:
            cells[5] = cells[6] = ""
        rows.append(cells)
    return rows


ROWS = make_rows()


def write(path, rows=ROWS, names=NAMES, separator=","):
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows([names, *rows])
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def by_hand(model, target, rows=ROWS, names=NAMES):
    """Return the predictions before each target was learned, in plain Python with one dictionary per row."""
    others = [name for name in names if name not in ("t", "kind", "amount")]
    levels, found = {}, []
    for cells in rows:
        row = dict(zip(names, cells, strict=True))
        y, x = row[target], {}
        for name in others:
            cell = row[name]
            if cell in ("", "NA"):
                continue
            try:
                x[name], text = float(cell), None
            except ValueError:
                text = cell
            if text is not None and y and text not in levels.setdefault(name, []):
                levels[name].append(text)
            for level in levels.get(name, []):
                x[f"{name}={level}"] = float(level == text)
        if isinstance(model, MeshStreamClassifier):
            P = model.predict_proba_one(x)
            label = model.predict_one(x)
            found.append((label, P.get(label)))
        else:
            found.append(None if model.stream_ is None else model.predict_one(x))
        if y:
            model.learn_one(x, y if isinstance(model, MeshStreamClassifier) else float(y))
        elif model.stream_ is not None:
            model.stream_.step(model.features_.fill(x)[0, 0])
    return found


def predictions(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def run(folder, *arguments):
    done = meshnn("stream", *arguments, "--out", folder / "m.mesh", "--predictions", folder / "p.csv", *QUIET)
    assert done.returncode == 0, done.stderr
    return done


def reference(folder, *arguments):
    """Return the file of predictions and the report of an uninterrupted run."""
    folder.mkdir()
    write(folder / "t.csv")
    done = run(folder, folder / "t.csv", *arguments, "--json")
    return (folder / "p.csv").read_bytes(), json.loads(done.stdout)
