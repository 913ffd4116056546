"""Structure policies: time of edits, accuracy of pruned nets, size of grown nets.

python benchmarks/structure.py [--only cost,curve,grow]
"""

import argparse
import time

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from meshnn import Mesh, MeshClassifier, Topology
from meshnn.tables.synthetic import spirals
from meshnn.training import Adam, Settings, Trainer, structure
from meshnn.training.api import as_samples

SHARES = (1.0, 0.5, 0.25, 0.1, 0.05)


def cost():
    """Measure the fraction of the training time that edits take; the bar is 5%."""
    print("| net | samples | edits | training, s | edits, s | share | at most 5% |\n|---|---|---|---|---|---|---|")
    cases = (
        ("32-50-10, 4980 to 1044 edges", Topology.mesh(32, 50, 10, self_loops=True, feedback=False), 60_000, 15,
         structure.Prune(to=1044)),
        ("32-50-10, 1044 edges regrown", Topology.mesh(32, 50, 10, density=0.2, self_loops=True, feedback=False,
                                                       random_state=0), 60_000, 15, structure.Regrow()),
        ("100-900-10, 200,000 to 100,000 edges", Topology.mesh(100, 900, 10, density=0.22, feedback=False,
                                                              random_state=0), 20_000, 10,
         structure.Prune(to=100_000, start="given")),
        ("100-900-10, 100,000 edges regrown", Topology.mesh(100, 900, 10, density=0.109, feedback=False,
                                                           random_state=0), 20_000, 10, structure.Regrow()),
    )  # fmt: skip
    rng, found = np.random.default_rng(0), []
    for name, topology, n, epochs, policy in [case for case in cases for _ in range(3)]:
        X = rng.standard_normal((n, topology.n_inputs)).astype(np.float32)
        y = rng.integers(0, 10, n)
        mesh = Mesh(topology, ticks=3, activation="relu", random_state=0)
        plan = Settings(solver=Adam(learning_rate=0.003), batch_size=128, max_epochs=epochs, tol=0.0, n_jobs=1)
        trainer = Trainer(mesh, as_samples(mesh, X, y, "cross_entropy"), plan, structure=policy)
        spent = []
        edit = trainer._edit

        def timed(*arguments, edit=edit, spent=spent):
            begin = time.perf_counter()
            notes = edit(*arguments)
            spent.append(time.perf_counter() - begin)
            return notes

        trainer._edit = timed
        begin = time.perf_counter()
        for _ in trainer.rows():
            pass
        whole, edits = time.perf_counter() - begin, sum(spent)
        found.append((edits / whole, whole, edits))
        if len(found) < 3:  # the first run loads code, and timings vary
            continue
        _, whole, edits = min(found)
        found.clear()
        met = "ok" if edits <= 0.05 * whole else "MISSED"
        steps = len(mesh.lineage_.steps)
        print(f"| {name} | {n} | {steps} | {whole:.2f} | {edits:.3f} | {edits / whole:.1%} | {met} |", flush=True)


def _policy(by, share):
    if by == "magnitude":
        return structure.Prune(to=share, begin=0.1, end=0.8)
    return [structure.Prune(to=share, by="saliency"), structure.Regrow(end=0.8)]


def curve():
    """Measure the test accuracy at fractions of the edges of a dense mesh, means over 10 splits."""
    print("\n| set, criterion | " + " | ".join(f"{share:.0%}" for share in SHARES) + " | no loss at 25% |")
    print("|---|" + "---|" * (len(SHARES) + 1))
    for name, load in (("digits", load_digits), ("breast_cancer", load_breast_cancer)):
        X, y = load(return_X_y=True)
        for by in ("saliency and regrown", "magnitude"):
            means, edges = [], []
            for share in SHARES:
                found = []
                for seed in range(10):
                    a, b, c, d = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
                    policy = None if share == 1.0 else _policy(by, share)
                    model = MeshClassifier(16, structure=policy, n_jobs=1, random_state=seed).fit(a, c)
                    found.append(model.score(b, d))
                means.append(float(np.mean(found)))
                edges.append(model.mesh_.topology.n_edges)
            cells = " | ".join(f"{mean:.4f} ({count})" for mean, count in zip(means, edges, strict=True))
            print(f"| {name}, {by} | {cells} | {'ok' if means[2] >= means[0] else 'MISSED'} |", flush=True)


def grow():
    """Measure the spirals, grown from 2 hidden neurons."""
    accuracy, sizes, seconds = [], [], []
    for seed in range(10):
        X, y = spirals(1000, random_state=seed)
        a, b, c, d = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
        begin = time.perf_counter()
        model = MeshClassifier(2, ticks=3, structure=structure.Grow(to=20), n_jobs=1, random_state=seed).fit(a, c)
        seconds.append(time.perf_counter() - begin)
        accuracy.append(model.score(b, d))
        sizes.append(model.mesh_.topology.n_hidden)
    met = "ok" if np.mean(accuracy) >= 0.99 else "MISSED"
    print(f"\nspirals grown from 2 hidden neurons: mean {np.mean(accuracy):.4f} (>= 0.99: {met}), worst "
          f"{min(accuracy):.4f}, stopped at {sizes} hidden neurons, {np.mean(seconds):.1f} s per fit")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="cost,curve,grow")
    chosen = parser.parse_args().only.split(",")
    for part in (cost, curve, grow):
        if part.__name__ in chosen:
            part()


if __name__ == "__main__":
    main()
