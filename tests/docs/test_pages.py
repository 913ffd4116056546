"""The pages: every code block runs and prints the output shown, apart from its numbers."""

import shutil
from pathlib import Path

import pytest

from pages_run import BLOCK, ROOT, run_page

PAGES = [
    page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if BLOCK.search(page.read_text())
]
#: Pages that run in the quick tests; the others take seconds per page.
QUICK = {"README.md", "how-to/choose-an-estimator.md", "how-to/use-your-own-graph.md", "reference/errors.md"}
#: Optional libraries and programs that a page requires.
NEEDS = {
    "tutorial.md": ("program arm-none-eabi-gcc", "program qemu-system-arm"),
    "how-to/deploy-to-a-microcontroller.md": ("program arm-none-eabi-gcc", "program qemu-system-arm"),
    "how-to/classify-sequences.md": ("sktime",),
    "how-to/deploy-in-a-container.md": ("onnxruntime", "program curl"),
    "how-to/evolve-with-neat.md": ("neat",),
    "how-to/forecast-with-other-libraries.md": ("sktime", "skforecast", "darts"),
    "how-to/serve-with-onnx-runtime.md": ("onnxruntime", "skl2onnx"),
    "how-to/train-on-dask.md": ("dask.dataframe", "distributed"),
    "how-to/tune.md": ("optuna",),
    "how-to/use-pytorch-and-jax.md": ("torch", "jax"),
    "how-to/use-river.md": ("river",),
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


def test_pages_with_needs_exist():
    assert {*NEEDS, *QUICK} <= {name_of(page) for page in PAGES}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name_of(page), marks=() if name_of(page) in QUICK else pytest.mark.slow) for page in PAGES],
)
def test_blocks(page: Path, tmp_path: Path):
    for need in NEEDS.get(name_of(page), ()):
        reason = f"{name_of(page)} IS NOT TESTED without {need}: see CONTRIBUTING.md"
        if need.startswith("program "):
            if shutil.which(need.removeprefix("program ")) is None:
                pytest.skip(reason)
        else:
            pytest.importorskip(need, reason=reason)
    differences = run_page(page, tmp_path)
    assert not differences, "\n".join(differences)
