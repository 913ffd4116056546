"""Folders of tables that several files of tests take."""

import numpy as np
import pytest

from folders import table, with_column, write


@pytest.fixture
def numbers(tmp_path):
    return write(tmp_path / "numbers", [table(seed=k) for k in range(3)])


@pytest.fixture
def classes(tmp_path):
    found = [table(seed=k) for k in range(3)]
    labels = [np.array(["no", "yes"])[(t["y"].to_numpy() > 0).astype(int)] for t in found]
    return write(tmp_path / "classes", [with_column(t, "y", y) for t, y in zip(found, labels, strict=True)])
