"""The state that `meshnn stream` stores with its model, to continue its table and to predict other tables."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from meshnn.errors import DataError, FileError, MeshError
from meshnn.online.blocks import Rows, TableRunner, model_classes, model_values, outputs_of
from meshnn.online.scores import scores_from
from meshnn.tables.blocks import Position
from meshnn.tables.encoder import Encoded
from meshnn.tables.names import listed, source
from meshnn.tables.streams import StreamSchema, parse_column
from meshnn.tables.text import ReadOptions


@dataclass
class StreamState:
    """How far a model has come in its table."""

    schema: StreamSchema
    source: str  # name of the table
    read: ReadOptions
    position: Position | None = None
    rows: int = 0  # of all tables so far
    base: int = 0  # of the tables before this one
    latest: Any = None  # time of the last row
    scores: Any = None
    predictions: dict[str, Any] = field(default_factory=dict)  # path and bytes of the file; empty without one
    finished: bool = False

    @classmethod
    def of(cls, model: Any, path: Path) -> Self:
        """Return the state that is stored with the model of a file."""
        tree = getattr(model, "table_", None)
        if tree is None:
            raise MeshError(f"{path} was not made by `meshnn stream`, so its table is not known; name a model that was")
        try:
            latest, read = tree["latest"], tree["read"]
            return cls(
                StreamSchema.from_dict(tree["schema"]), tree["source"],
                ReadOptions(**read | {"na": tuple(map(str, read["na"]))}), Position(**tree["position"]),
                int(tree["rows"]), int(tree["base"]), None if latest is None else tuple(latest),
                scores_from(tree["scores"]), dict(tree["predictions"]), bool(tree["finished"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"{path} does not hold a valid stream ({error}); start anew") from None

    def to_tree(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        tree = asdict(self) | {"scores": self.scores.to_tree()}
        tree["latest"] = None if self.latest is None else list(self.latest)
        tree["read"]["na"] = list(self.read.na)
        del tree["read"]["block_size"]
        return tree


class StreamEstimator:
    """A model of `meshnn stream` as an estimator: with an encoder of tables (itself) and sorted classes."""

    def __init__(self, model: Any, path: Path) -> None:
        state = StreamState.of(model, path)
        if model.stream_ is None:
            raise MeshError(f"{path} has not learned from any row yet; go on with meshnn stream --resume {path}")
        self._model, self._schema = model, state.schema
        self.target_, self.encoder_, self.read_ = state.schema.target, self, state.read
        self.columns = [SimpleNamespace(name=name) for name in state.schema.features]
        self.text_columns = state.schema.text
        self._last: tuple[Any, Any] = (None, None)
        if state.schema.task == "classify":
            one_type = len({type(label) for label in model.classes_}) == 1
            self._labels = np.array(model.classes_ if one_type else [str(label) for label in model.classes_])
            self._order = np.argsort(self._labels, kind="stable")
            self.classes_ = self._labels[self._order]

    def encode(self, table: Any) -> Encoded:
        """Return rows of features; a column that is not there is missing, as it may be on a stream."""
        notes, features = ["the model as its stream left it; nothing is learned from this table"], self._schema.features
        there = [name for name in features if name in table.column_names]
        if not there:
            what = "none of the columns that the model was learned from is there; they are"
            raise DataError(f"{source(table)}{what} {listed(features)}", code="columns")
        if lost := [name for name in features if name not in there]:
            notes.append(f"{source(table)}there is no column {listed(lost, 5)}: taken as missing")
        parsed = {name: parse_column(table.column(name), name in self.text_columns) for name in there}
        rows = Rows(parsed, None, np.full(table.num_rows, np.nan), None, table.num_rows, None)
        return Encoded(TableRunner(self._model, self._schema).matrix(rows, 0, table.num_rows), notes)

    def _outputs(self, table: Any) -> Any:
        if self._last[0] is not table:  # a net with memory must not see the rows twice
            encoded = self.encode(table)
            for note in encoded.notes:
                warnings.warn(note, UserWarning, stacklevel=3)
            self._last = table, outputs_of(self._model, encoded.X)
        return self._last[1]

    def predict(self, X: Any) -> Any:
        """Return the class or value of each row of a table."""
        if not hasattr(self, "classes_"):
            return model_values(self._model, self._outputs(X))
        return self._labels[model_classes(self._model, self._outputs(X))[0]]

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the classes."""
        return model_classes(self._model, self._outputs(X))[1][:, self._order]
