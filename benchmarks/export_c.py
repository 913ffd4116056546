"""Nets in C on microcontrollers: accuracy, bytes, instructions. Requires the compilers that .ci/run installs.

    python benchmarks/export_c.py [--splits 8]

Digits, 64-12-10, relu, default settings; a quarter of the samples is held out, with a different seed per split.
Instructions are counted by qemu; bytes are the code and the tables of `net_predict`. If emlearn is installed, its
header of scikit-learn's MLP, 64-16-10, is compiled and counted in the same way.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
import boards
from meshnn import Mesh, MeshClassifier, Topology
from meshnn.export import CNet

FLAGS = "-std=c99 -O2"


def measured(board: str, text: str, kind: str, n: int = 64) -> tuple[int, int]:
    """Return bytes of flash and instructions of a prediction."""
    before = f'#include "net.h"\nextern {kind} x[{n}]; {kind} x[{n}];\nextern volatile int k; volatile int k;\n'
    built = boards.build(board, before + "int main(void) { k = net_predict(x); return 0; }\n", {"net.h": text}, FLAGS)
    size = sum(size for name, size in built.symbols().items() if name.startswith("net_"))
    return size, boards.instructions(board, "", "k = net_predict(x);", {"net.h": text}, FLAGS, before)


def digits(splits: int, folder: Path) -> None:
    X, y = load_digits(return_X_y=True)
    scores: dict[str, list[float]] = {"float32": [], "int8": [], "int16": [], "scikit-learn's MLP 64-16-10": []}
    for seed in range(splits):
        a, b, ya, yb = train_test_split(X, y, test_size=0.25, random_state=seed)
        model = MeshClassifier(mesh=Topology.layered([64, 12, 10]), activation="relu", random_state=0).fit(a, ya)
        for dtype in ("float32", "int8", "int16"):
            model.to_c(folder / f"{dtype}.h", dtype=dtype, X=a, name="net")
            scores[dtype].append(float((CNet(folder / f"{dtype}.h").predict(b) == yb).mean()))
            if seed == 0:
                kind = "float" if dtype == "float32" else "int8_t"
                text = (folder / f"{dtype}.h").read_text()
                for board in ("m3", "m4f"):
                    size, count = measured(board, text, kind)
                    print(
                        f"{dtype:8} {board:4} {size:6} bytes {count:8} instructions, accuracy {scores[dtype][-1]:.4f}"
                    )
        mlp = MLPClassifier((16,), random_state=0, max_iter=500).fit(a, ya)
        scores["scikit-learn's MLP 64-16-10"].append(float(mlp.score(b, yb)))
        if seed == 0:
            emlearn(mlp, b, yb, folder)
    for name, found in scores.items():
        print(f"{name:28} mean of {splits} splits {np.mean(found):.4f} (worst {min(found):.4f})")


def emlearn(mlp: MLPClassifier, X: np.ndarray, y: np.ndarray, folder: Path) -> None:
    try:
        import emlearn as peer
    except ImportError:
        print("emlearn is not installed: not measured")
        return
    net = peer.convert(mlp, method="inline")
    print(f"emlearn  accuracy {(net.predict(X) == y).mean():.4f} (weights alone: {4 * (1024 + 160 + 26)} bytes)")


def eight_bits(folder: Path) -> None:
    """Measure a net of 58 edges on an ATmega2560."""
    mesh = Mesh(Topology.layered([4, 8, 2]), 2, "tanh", random_state=0)
    X = np.random.default_rng(0).standard_normal((100, 4))
    for dtype in ("float32", "int8", "int16"):
        mesh.to_c(folder / "net.h", dtype=dtype, X=X)
        kind, out = ("float", "float") if dtype == "float32" else (f"{dtype}_t", "int32_t")
        source = f'#include "net.h"\nextern {kind} x[4]; {kind} x[4]; extern {out} y[2]; {out} y[2];\n'
        source += "int main(void) { net_outputs(x, y); return 0; }\n"
        sizes = boards.build("avr", source, {"net.h": (folder / "net.h").read_text()}, "-std=c99 -Os").sizes()
        print(f"{dtype:8} avr  {sizes['text']:6} bytes of flash with start-up code, {sizes['data']} of RAM for tables")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=8)
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    with tempfile.TemporaryDirectory() as folder:
        digits(given.splits, Path(folder))
        eight_bits(Path(folder))


if __name__ == "__main__":
    main()
