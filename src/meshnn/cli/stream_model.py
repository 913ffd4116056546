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
from meshnn.tables.names import shown, source
from meshnn.tables.streams import StreamSchema, parse_column

__all__ = ["facts_of_stream", "fitted_stream"]

F64 = NDArray[np.float64]


def fitted_stream(path: Path, model: Any) -> Any:
    """What predicts the rows of tables."""
    if model.table_ is None:
        raise MeshError(
            f"{path} holds a model of a stream that was made in Python and knows no table; use its predict_many there"
        )
    if model.stream_ is None:
        raise MeshError(f"{path} has not learned from any row yet; go on with meshnn stream --resume {path}")
    try:
        recipe = StreamSchema.from_dict(model.table_["recipe"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"{path} does not hold a stream that makes sense ({error})") from None
    return (_Classifier if recipe.task == "classify" else _Regressor)(model, recipe)


class _Encoder:
    """Columns of a table to features, by the recipe of the stream."""

    def __init__(self, model: Any, recipe: StreamSchema) -> None:
        self._walk, self._recipe = TableRunner(model, recipe), recipe
        self.columns = [SimpleNamespace(name=name) for name in recipe.features]
        self.text_columns = list(recipe.features)  # as written: the recipe says what is a number

    def encode(self, table: Any) -> Encoded:
        """Rows of features; a column that is not there is missing, as it may be on a stream."""
        notes, columns = ["the model as its stream left it; nothing is learned from this table"], {}
        there = [name for name in self._recipe.features if name in table.column_names]
        lost = [name for name in self._recipe.features if name not in there]
        if not there:
            raise DataError(
                f"{source(table)}none of the columns that the model was learned from is there; they are "
                f"{', '.join(map(shown, lost[:20]))}"
            )
        if lost:
            few = ", ".join(map(shown, lost[:5])) + (", ..." if len(lost) > 5 else "")
            notes.append(f"{source(table)}there is no column {few}: taken as missing")
        for name in there:
            columns[name] = parse_column(table.column(name), name in self._recipe.text)
        nothing = np.full(table.num_rows, np.nan)
        rows = Rows(columns, None, nothing, None, table.num_rows, None)
        return Encoded(self._walk.matrix(rows, 0, table.num_rows), notes)


class _Fitted:
    def __init__(self, model: Any, recipe: StreamSchema) -> None:
        self._model, self.target_ = model, recipe.target
        self.encoder_ = _Encoder(model, recipe)
        self._asked: tuple[Any, Any] = (None, None)

    def _outputs(self, table: Any) -> F64:
        if self._asked[0] is not table:  # a net that remembers must not see the rows twice
            encoded = self.encoder_.encode(table)
            for note in encoded.notes:
                warnings.warn(note, UserWarning, stacklevel=3)
            self._asked = table, outputs_of(self._model, encoded.X)
        found: F64 = self._asked[1]
        return found


class _Regressor(_Fitted):
    def predict(self, X: Any) -> F64:
        return model_values(self._model, self._outputs(X))


class _Classifier(_Fitted):
    def __init__(self, model: Any, recipe: StreamSchema) -> None:
        super().__init__(model, recipe)
        labels = model.classes_
        plain = labels if len({type(label) for label in labels}) == 1 else [str(label) for label in labels]
        found = np.array(plain)
        self._order = np.argsort(found, kind="stable")
        self.classes_ = found[self._order]

    def predict(self, X: Any) -> Any:
        numbers, _ = model_classes(self._model, self._outputs(X))
        place = np.empty(len(self._order), np.int64)
        place[self._order] = np.arange(len(self._order))
        return self.classes_[place[numbers]]

    def predict_proba(self, X: Any) -> F64:
        found: F64 = model_classes(self._model, self._outputs(X))[1][:, self._order]
        return found


def facts_of_stream(model: Any) -> dict[str, Any]:
    """What `meshnn info` says about it, besides the net."""
    facts: dict[str, Any] = {
        "classes": [str(label) for label in getattr(model, "classes_", [])],
        "features": [str(name) for name in model.features_.names] or None,
        "learner": model.learner,
        "memory": model.memory,
        "samples_learned": model.n_samples_,
    }
    table = model.table_
    if not isinstance(table, dict):
        return facts
    try:
        from meshnn.online.scores import scores_from

        recipe, scores = StreamSchema.from_dict(table["recipe"]), scores_from(table["scores"])
        facts |= {
            "target": recipe.target,
            "ordered_by": recipe.by,
            "dropped": recipe.drop or None,
            "table": table["source"],
            "rows": table["rows"],
            "stream": "finished" if table["finished"] else "goes on: meshnn stream ... --resume",
            "scores": {name: round(value, 6) for name, value in scores.summary().items()} if scores.rows else None,
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        facts["stream"] = "does not make sense"
    return facts
