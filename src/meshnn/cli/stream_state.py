"""The state that `meshnn stream` stores with its model, to resume a table and to predict other tables."""

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
    """The position of a model in its table, with the schema and the scores."""

    schema: StreamSchema
    source: str  # name of the table
    read: ReadOptions
    position: Position | None = None
    rows: int = 0  # consumed so far, in all tables
    base: int = 0  # consumed in the tables before this one
    latest: Any = None  # time of the last row
    scores: Any = None
    predictions: dict[str, Any] = field(default_factory=dict)  # path and size of the file; empty without one
    finished: bool = False

    @classmethod
    def of(cls, model: Any, path: Path) -> Self:
        """Return the state that is stored with the model of a file."""
        tree = getattr(model, "table_", None)
        if tree is None:
            raise MeshError(
                f"{path} was not made by `meshnn stream`, so its table is not known; pass a model of that command"
            )
        try:
            latest, read = tree["latest"], tree["read"]
            return cls(
                StreamSchema.from_dict(tree["schema"]), tree["source"],
                ReadOptions(**read | {"na": tuple(map(str, read["na"]))}), Position(**tree["position"]),
                int(tree["rows"]), int(tree["base"]), None if latest is None else tuple(latest),
                scores_from(tree["scores"]), dict(tree["predictions"]), bool(tree["finished"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(
                f"{path} does not hold a valid stream ({error}); start a new one without --resume"
            ) from None

    def to_tree(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        tree = asdict(self) | {"scores": self.scores.to_tree()}
        tree["latest"] = None if self.latest is None else list(self.latest)
        tree["read"]["na"] = list(self.read.na)
        del tree["read"]["block_size"]
        return tree


class StreamEstimator:
    """A model of `meshnn stream` with the interface of a fitted estimator: an encoder (itself) and sorted classes."""

    def __init__(self, model: Any, path: Path) -> None:
        state = StreamState.of(model, path)
        if model.stream_ is None:
            raise MeshError(f"{path} has not learned any row yet; continue it with meshnn stream ... --resume {path}")
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
        """Return the features of all rows. As on a stream, an absent column counts as missing values."""
        notes, features = ["predictions of the model at the end of its stream, without learning"], self._schema.features
        there = [name for name in features if name in table.column_names]
        if not there:
            message = "the table has none of the feature columns of the model, which are"
            raise DataError(f"{source(table)}{message} {listed(features)}", code="columns")
        if lost := [name for name in features if name not in there]:
            notes.append(f"{source(table)}there is no column {listed(lost, 5)}: its values count as missing")
        parsed = {name: parse_column(table.column(name), name in self.text_columns) for name in there}
        rows = Rows(parsed, None, np.full(table.num_rows, np.nan), None, table.num_rows, None)
        return Encoded(TableRunner(self._model, self._schema).matrix(rows, 0, table.num_rows), notes)

    def _outputs(self, table: Any) -> Any:
        if self._last[0] is not table:  # a second pass would change the state of a network with memory
            encoded = self.encode(table)
            for note in encoded.notes:
                warnings.warn(note, UserWarning, stacklevel=3)
            self._last = table, outputs_of(self._model, encoded.X)
        return self._last[1]

    def predict(self, X: Any) -> Any:
        """Return the predicted class or value of each row of a table."""
        if not hasattr(self, "classes_"):
            return model_values(self._model, self._outputs(X))
        return self._labels[model_classes(self._model, self._outputs(X))[0]]

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the classes `(n_rows, n_classes)`."""
        return model_classes(self._model, self._outputs(X))[1][:, self._order]
