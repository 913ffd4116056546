"""The picture at the top of the README: a mesh pruned to 80 of 222 edges, and its decision regions for two spirals.

python docs/pictures/make_first_screen.py [FILE]

On the same machine the output is reproducible. Text is drawn as outlines, so that no font is needed. CSS rules change
the colours for dark screens.
"""

import base64
import io
import re
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from meshnn import MeshClassifier
from meshnn.plots import draw_graph, draw_regions, save_figure, style
from meshnn.tables.synthetic import spirals
from meshnn.training import structure

HERE = Path(__file__).parent
HIDDEN, EDGES, LEARNED, DRAWN = 12, 80, 700, 110
GROUND = "#fefefe"  # nothing else in the picture has this colour
#: Colours on light screens with their replacements on dark screens.
DARK = {GROUND: "#0d1117", "#ffffff": "#0d1117", "#d9d9d9": "#3d444d", style.INK: "#e6edf3", style.FAINT: "#9198a1",
        style.POSITIVE: "#4aa3f0"}  # fmt: skip
#: Parts where colours are replaced: the graph, and the text around the regions.
PARTS = ("axes_1", "matplotlib\\.axis_1", "matplotlib\\.axis_2", "side-title")


def learned():
    """Return the model, its samples, its initial number of edges and its accuracy."""
    X, y = spirals(1000, random_state=0)
    model = MeshClassifier(HIDDEN, structure=structure.Prune(to=EDGES), random_state=0)
    model.fit(X[:LEARNED], y[:LEARNED])
    return model, X, y, model.mesh_.lineage_.edges_over_time()[0][1], model.score(X[LEARNED:], y[LEARNED:])


def figure():
    """Return the figure with the graph on the left and the regions on the right."""
    model, X, y, began, right = learned()
    mesh = model.mesh_
    drawn = Figure(figsize=(9.0, 3.7), layout="constrained", facecolor=GROUND)
    left, side = drawn.subplots(1, 2, width_ratios=(1.35, 1.0))
    with style.clean_style():
        draw_graph(left, mesh.topology, mesh.weights, dead=mesh.dead_edges(), feature_names=["x1", "x2"])
        style.panel_title(left, f"{mesh.topology.n_edges} of {began} edges are left, in {mesh.ticks} ticks")
        far = float(np.abs(X).max()) * 1.05
        test = slice(LEARNED, LEARNED + DRAWN)
        draw_regions(side, model.predict_proba, (-far, far, -far, far), points=X[test], labels=y[test])
        title = f"{right:.0%} of {len(X) - LEARNED} new points are right"
        style.panel_title(side, title)
    left.set_facecolor("none")
    side.get_legend().remove()
    side.set_aspect("equal")
    next(text for text in side.findobj(Text) if text.get_text() == title).set_gid("side-title")
    return drawn


def for_dark_screens(text):
    """Return the SVG with rules for dark screens; the regions and their outlines keep their colours."""
    rules = [f"#patch_1 path{{fill:{DARK[GROUND]} !important}}"]
    for light, dark in DARK.items():
        for kind in ("fill", "stroke"):
            rules += [f'#{part} [style*="{kind}: {light}"]{{{kind}:{dark} !important}}' for part in PARTS]
    rule = "@media (prefers-color-scheme:dark){" + "".join(rules) + "}"
    return text.replace("<defs>", f'<defs>\n  <style type="text/css">{rule}</style>', 1)


def smaller(text):
    """Return the SVG with one decimal place instead of six, and 64 colours in the regions."""
    text = re.sub(r"(?<![\d.#])([1-9]\d*\.\d)\d+", r"\1", text)
    text = re.sub(r"(opacity|width): (0\.\d\d)\d+", r"\1: \2", text)
    text = re.sub(r" *\n(?=[LQCMz\"])", "", text)  # letters separate the numbers of a path
    text = re.sub(r"(?<=\d) ?([LQCM]) ", r"\1", text)
    text = re.sub(r' clip-path="[^"]*"', "", text)  # nothing exceeds the clip path
    text = re.sub(r"\n +", "\n", text)

    def fewer(found):
        picture = Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGB")
        kept = io.BytesIO()
        picture.quantize(64, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(kept, "PNG", optimize=True)
        return "data:image/png;base64," + base64.b64encode(kept.getvalue()).decode()

    return re.sub(r"data:image/png;base64,\s*([A-Za-z0-9+/=\s]+)", fewer, text)


def main():
    """Draw, adapt and write the picture."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "first-screen.svg"
    save_figure(figure(), target)
    target.write_text(for_dark_screens(smaller(target.read_text())))
    print(f"{target}: {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
