"""Reliability diagrams: the accuracy of the most probable class in bins of its predicted probability.

python benchmarks/calibration.py                          # prints the curves
python benchmarks/calibration.py --figure docs/pictures/reliability.svg

Noisy tables of table_sets.py, five folds, all models with default settings; the samples of all tables count equally.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import warnings

import numpy as np
from sklearn.model_selection import StratifiedKFold

import table_sets
from tables import make

TABLES = ("noise", "flipped", "one-feature", "fair", "anes96-vote", "star98-above", "seattle-weather", "lognormal",
          "heavy-tails", "ordinal", "ten-classes", "moons", "noisy-5000x50")  # fmt: skip
MODELS = ("meshnn", "linear", "MLP", "RF")
EDGES = np.linspace(0, 1, 11)
MOST = 1500  # maximum number of rows per table


def confidences(model):
    """Return the highest probability of each sample of all tables, and whether that class was right."""
    top, right = [], []
    for name in TABLES:
        table = table_sets.load(name)
        if table is None:
            print(f"{name}: not available, skipped")
            continue
        rows = np.random.default_rng(0).permutation(len(table.X))[:MOST]
        X, y = table.X[rows], table.y[rows]
        for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = make(model, table.task, 0, {}).fit(X[train], y[train])
            chance = fitted.predict_proba(X[test])
            top.append(chance.max(axis=1))
            right.append(fitted.classes_[chance.argmax(axis=1)] == y[test])
    return np.concatenate(top), np.concatenate(right)


def curve(top, right):
    """Return (number of samples, mean probability, accuracy) per bin, and the expected calibration error."""
    place = np.clip(np.digitize(top, EDGES) - 1, 0, len(EDGES) - 2)
    bins = [(int(np.sum(at)), float(top[at].mean()), float(right[at].mean()))
            for k in range(len(EDGES) - 1) if (at := place == k).any()]  # fmt: skip
    return bins, sum(n * abs(predicted - actual) for n, predicted, actual in bins) / len(top)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", help="file of the figure, .svg or .png")
    options = parser.parse_args()
    found = {}
    for model in MODELS:
        found[model] = curve(*confidences(model))
        print(f"{model}: expected calibration error {found[model][1]:.3f}")
        for n, predicted, actual in found[model][0]:
            print(f"    predicted {predicted:.3f}  actual {actual:.3f}  ({n} samples)")
    if options.figure:
        draw(found, options.figure)


def draw(found, path):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "meshnn"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
    axes.plot([0.2, 1], [0.2, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    colours = dict(zip(MODELS, ("#c1272d", "#0072b2", "#009e73", "#7f6aa8"), strict=True))
    for model, (bins, error) in found.items():
        many = [(predicted, actual) for n, predicted, actual in bins if n >= 30]
        strong = model == "meshnn"
        axes.plot(*zip(*many, strict=True), marker="o", markersize=5 if strong else 3.5, color=colours[model],
                  linewidth=2.2 if strong else 1.2, zorder=3 if strong else 2,
                  label=f"{model}, error {error:.3f}")  # fmt: skip
    axes.set(xlabel="predicted probability", ylabel="accuracy")
    axes.set(xlim=(0.2, 1.0), ylim=(0.2, 1.0))
    axes.grid(color="0.92")
    axes.legend(frameon=False, loc="upper left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None, dpi=150)


if __name__ == "__main__":
    main()
