"""`RowStore`: a source, read once into a file, from which it is trained in windows of shuffled pages."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.arrays import Array, FloatArray
from meshnn.errors import DataError
from meshnn.tables.holdout import HoldoutSplit
from meshnn.tables.sources import RowBlock, Source
from meshnn.training.dataset import LIMITS, Dataset, InMemoryDataset, evenly_spaced, sums_per_label
from meshnn.training.out_of_core.row_file import RowFile
from meshnn.training.out_of_core.windows import StoredSamples
from meshnn.training.row_transform import RowTransform, check_total

__all__ = ["LabelCodes", "RowStore"]


class LabelCodes(dict[Any, int]):
    """Numbers of labels, in the order in which they turn up."""

    def encode(self, y: Array) -> Array:
        """Return the codes of some labels; they do not depend on how the labels are divided into blocks."""
        if self and (y.dtype.kind in "US") != isinstance(next(iter(self)), (str, bytes)):
            raise DataError("y holds text in some blocks and numbers in others; make them alike")
        if y.dtype.kind == "f" and (some := y[y != np.floor(y)]).size:
            raise DataError(f"y holds {some[0]:g}, which is no label; for amounts take MeshRegressor")
        found, begins, place = np.unique(y, return_index=True, return_inverse=True)
        turn = np.argsort(begins)
        codes = np.array([self.setdefault(label, len(self)) for label in found[turn].tolist()], np.int64)
        if len(self) > LIMITS.max_classes:
            raise DataError(
                f"y holds more than {LIMITS.max_classes:,} different values; for amounts take MeshRegressor"
            )
        return codes[np.argsort(turn)[place.ravel()]]


class RowStore(Dataset):
    """Rows in a file.

    Parameters
    ----------
    source : Source
    classes : bool
        Whether targets are labels.
    folder : path, optional
        Of the file.
    report : callable, optional
        Called with the number of rows read.
    """

    def __init__(
        self, source: Source, classes: bool, folder: Any = None, report: Callable[[int], None] | None = None
    ) -> None:
        codes, file = LabelCodes(), None
        try:
            for block in source.blocks():
                rows = block._replace(y=_as_matrix(block.y, classes, codes))
                if rows.X.shape[1] == 0:
                    raise DataError(f"there is no feature in {source.name}")
                if file is None:
                    file = RowFile(rows, folder, source.n_rows)
                    self.n_features, self.n_targets = rows.X.shape[1], rows.y.shape[1]
                if rows.y.shape[1] != self.n_targets:
                    raise DataError(f"y has {rows.y.shape[1]} columns in some blocks and {self.n_targets} in others")
                file.append(rows)
                if report is not None:
                    report(file.count)
            if file is None:
                raise DataError(f"{source.name} has no rows (an iterator can be read only once)")
            file.close()
            check_total(file.summary.moments.weight)
        except BaseException:
            if file is not None:
                file.release()
            raise
        self.file, self.pages, self.n_rows = file, np.arange(file.pages), file.count
        self.columns, self.labels, self.matrix_targets = source.columns, list(codes), block.y.ndim == 2
        self.moments, self.fingerprint = file.summary.moments, file.summary.fingerprint
        self.y_min = None if classes else file.summary.y_min

    @cached_property
    def label_sums(self) -> FloatArray:  # type: ignore[override]
        """Sum of the weights of the rows per label; in one order for any blocks, as sums of fractions depend on it."""
        found: FloatArray = np.sum([sums_per_label(rows, len(self.labels)) for rows in self._strides()], axis=0)
        return found

    def _strides(self) -> Iterator[RowBlock]:
        return (self.file.read(self.pages[k : k + 2**8]) for k in range(0, len(self.pages), 2**8))

    def few(self, n: int) -> RowBlock:
        """Load up to n rows, evenly spaced."""
        return self.file.rows(evenly_spaced(n, self.n_rows))

    def hold_out(self, fraction: float, seed: int) -> tuple[RowStore, InMemoryDataset]:
        """Hold out random pages, one of at least four."""
        pages, size = self.file.pages, LIMITS.page_rows
        if pages < 4:
            raise DataError(
                f"early_stopping holds out pages of {size} rows, of at least {3 * size + 1}, but there are "
                f"{self.n_rows}; read them into memory and fit from there"
            )
        count = min(max(1, round(fraction * pages)), pages - 1, LIMITS.holdout_rows // size)
        split = HoldoutSplit.random(pages, count, [seed, 2])
        return self._part(split.kept), InMemoryDataset(self.file.read(split.held), self.labels, self.columns)

    def _part(self, pages: NDArray[np.int64]) -> RowStore:
        found = copy.copy(self)
        found.pages, found.n_rows = pages, int(self.file.page_sizes(pages).sum())
        return found

    def prepared(self, preprocessing: RowTransform) -> StoredSamples:
        """Return the rows as a net takes them."""
        if self.file.weighted or preprocessing.class_weight is not None:
            total = check_total(sum(preprocessing.total_weight(rows) for rows in self._strides()))
        else:
            total = float(self.n_rows)
        return StoredSamples(self.file, preprocessing, self.pages, total)

    def release(self) -> None:
        """Free the disk."""
        self.file.release()


def _as_matrix(y: Array, classes: bool, codes: LabelCodes) -> Array:
    """Return targets (n, m) as float64, labels as codes."""
    y = y if y.ndim == 2 else y[:, None]
    if classes:
        if y.shape[1] > 1:
            raise DataError("y has several columns; labels in columns are learned from memory only")
        y = codes.encode(y[:, 0])[:, None]
    elif y.dtype.kind not in "fiub":
        raise DataError(f"y holds {y.dtype}, expected numbers; for labels take MeshClassifier")
    return y.astype(np.float64)
