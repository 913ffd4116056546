"""A model of `meshnn stream` as `predict` and `evaluate` see models: with an encoder of tables, and sorted classes."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.errors import DataError, FileError, MeshError
from meshnn.online.blocks import Rows, TableRunner, model_classes, model_values, outputs_of
from meshnn.tables.encoder import Encoded
from meshnn.tables.names import listed, source
from meshnn.tables.streams import StreamSchema, parse_column
from meshnn.tables.text import ReadOptions

__all__ = ["fitted_stream"]

F64 = NDArray[np.float64]


def fitted_stream(path: Path, model: Any) -> Any:
    """Return what predicts the rows of tables."""
    if model.table_ is None:
        raise MeshError(
            f"{path} holds a model of a stream that was made in Python and knows no table; use its predict_many there"
        )
    if model.stream_ is None:
        raise MeshError(f"{path} has not learned from any row yet; go on with meshnn stream --resume {path}")
    try:
        schema, read = StreamSchema.from_dict(model.table_["recipe"]), model.table_["read"]
        options = ReadOptions(**read | {"na": tuple(map(str, read["na"]))})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path} does not hold a valid stream ({error})") from None
    found: Any = (_StreamClasses if schema.task == "classify" else _StreamValues)(model, schema)
    found.read_ = options
    return found


class _StreamValues:
    """Predicts numbers; it is its own encoder."""

    def __init__(self, model: Any, schema: StreamSchema) -> None:
        self._model, self._schema, self._runner = model, schema, TableRunner(model, schema)
        self.target_, self.encoder_ = schema.target, self
        self.columns = [SimpleNamespace(name=name) for name in schema.features]
        self.text_columns = list(schema.text)
        self._last: tuple[Any, Any] = (None, None)

    def encode(self, table: Any) -> Encoded:
        """Return rows of features; a column that is not there is missing, as it may be on a stream."""
        notes, features = ["the model as its stream left it; nothing is learned from this table"], self._schema.features
        there = [name for name in features if name in table.column_names]
        lost = [name for name in features if name not in there]
        if not there:
            what = "none of the columns that the model was learned from is there; they are"
            raise DataError(f"{source(table)}{what} {listed(lost)}", code="columns")
        if lost:
            notes.append(f"{source(table)}there is no column {listed(lost, 5)}: taken as missing")
        parsed = {name: parse_column(table.column(name), name in self._schema.text) for name in there}
        rows = Rows(parsed, None, np.full(table.num_rows, np.nan), None, table.num_rows, None)
        return Encoded(self._runner.matrix(rows, 0, table.num_rows), notes)

    def _outputs(self, table: Any) -> F64:
        if self._last[0] is not table:  # a net with memory must not see the rows twice
            encoded = self.encode(table)
            for note in encoded.notes:
                warnings.warn(note, UserWarning, stacklevel=3)
            self._last = table, outputs_of(self._model, encoded.X)
        found: F64 = self._last[1]
        return found

    def predict(self, X: Any) -> Any:
        return model_values(self._model, self._outputs(X))


class _StreamClasses(_StreamValues):
    """Predicts classes, in the order of their names."""

    def __init__(self, model: Any, schema: StreamSchema) -> None:
        super().__init__(model, schema)
        labels = model.classes_
        found = np.array(labels if len({type(label) for label in labels}) == 1 else [str(label) for label in labels])
        self._order = np.argsort(found, kind="stable")
        self.classes_ = found[self._order]

    def predict(self, X: Any) -> Any:
        return self.classes_[np.argsort(self._order)[model_classes(self._model, self._outputs(X))[0]]]

    def predict_proba(self, X: Any) -> F64:
        found: F64 = model_classes(self._model, self._outputs(X))[1][:, self._order]
        return found
