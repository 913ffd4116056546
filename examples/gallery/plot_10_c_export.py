"""
A net as C, in eight bits
=========================

``to_c`` writes a trained net as one C99 header that needs no library: in floats, or in whole numbers of 8 or 16 bits
for chips that have no floating point. Here a net that parts two moons is written in three ways, compiled where there is
a compiler, and asked the same questions.
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
print(f"in Python: {model.score(X_test, y_test):.3f} right")

# %%
# Integer nets choose their scales on the training samples; the report tells size and accuracy.

compiler = any(map(shutil.which, ("cc", "gcc", "clang")))
nets = {"Python": model.predict_proba}
with tempfile.TemporaryDirectory() as folder:
    for dtype in ("float32", "int16", "int8"):
        path = Path(folder) / f"moons_{dtype}.h"
        report = model.to_c(path, dtype=dtype, X=X, y=y)
        print(str(report).replace(str(path), path.name))
        if compiler:
            net = CNet(path)
            given = X_test if dtype == "float32" else net.quantise(X_test)  # a chip would hand over whole numbers
            print(f"  compiled: {np.mean(net.predict(given) == y_test):.3f} right on {len(X_test)} samples not learned")
            if dtype == "int8":
                nets["C, int8"] = lambda points, net=net: net.predict_proba(net.quantise(points))
    print("\nThe header begins:\n")
    print("\n".join(path.read_text().splitlines()[:12]))

# %%
# What both decide: eight bits are coarse, and the border hardly moves. Beyond the samples that scales were chosen on,
# features in whole numbers are at their largest: hence the straight ends in the corners.

fig, axes = plt.subplots(1, len(nets), figsize=(5.5 * len(nets), 4.2), layout="constrained", squeeze=False)
for ax, (name, decide) in zip(axes[0], nets.items(), strict=True):
    draw_regions(ax, decide, (-1.8, 2.8, -1.3, 1.8), points=X_test, labels=y_test, classes=[0, 1])
    ax.set_title(name, loc="left", fontsize=10)
plt.show()
