"""
Export to C with 8-bit integers
===============================

``to_c`` writes a trained network as one C99 header without dependencies. The header computes with floats, or with 8-bit
or 16-bit integers for chips without floating-point hardware. This example exports a classifier of two moons in three
number formats, compiles the headers if a compiler is installed, and compares the predictions.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from sklearn.model_selection import train_test_split

from meshnn import MeshClassifier
from meshnn.export import CNet
from meshnn.plots import draw_regions
from meshnn.tables.synthetic import moons

X, y = moons(600, noise=0.15, random_state=0)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0)
model = MeshClassifier(6, activation="tanh", solver="lm", l2=1e-3, random_state=0).fit(X, y)
print(f"Python: accuracy {model.score(X_test, y_test):.3f} on the test set")

# %%
# The scales of an integer network are chosen on the training samples. The report shows size and accuracy.

compiler = any(map(shutil.which, ("cc", "gcc", "clang")))
nets = {"Python": model.predict_proba}
with tempfile.TemporaryDirectory() as folder:
    for dtype in ("float32", "int16", "int8"):
        path = Path(folder) / f"moons_{dtype}.h"
        report = model.to_c(path, dtype=dtype, X=X, y=y)
        print(str(report).replace(str(path), path.name))
        if compiler:
            net = CNet(path)
            given = X_test if dtype == "float32" else net.quantise(X_test)  # integer networks take integer features
            accuracy = np.mean(net.predict(given) == y_test)
            print(f"  compiled: accuracy {accuracy:.3f} on {len(X_test)} test samples")
            if dtype == "int8":
                nets["C, int8"] = lambda points, net=net: net.predict_proba(net.quantise(points))
    print("\nThe header begins:\n")
    print("\n".join(path.read_text().splitlines()[:12]))

# %%
# The decision regions of both: with 8 bits the boundary hardly moves. Integer features saturate outside the range of
# the training samples, which causes the straight boundaries in the corners.

fig, axes = plt.subplots(1, len(nets), figsize=(5.5 * len(nets), 4.2), layout="constrained", squeeze=False)
for ax, (name, decide) in zip(axes[0], nets.items(), strict=True):
    draw_regions(ax, decide, (-1.8, 2.8, -1.3, 1.8), points=X_test, labels=y_test, classes=[0, 1])
    ax.set_title(name, loc="left", fontsize=10)
plt.show()
