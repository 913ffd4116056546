"""What the cells of a table on a stream are: numbers, texts, nothing; classes or amounts; a time that goes on.

The rule looks at one cell only, so it does not matter what came before: a cell that is a number is one, any other text
is a feature of its own ("colour=red"). Numbers with leading zeros are codes, that is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshnn.data.encoding import FEW_CLASSES
from meshnn.data.tables import DECIMAL_COMMA, NUMBER, PERCENT, THOUSANDS, shown

__all__ = [
    "Labels",
    "Parsed",
    "StreamSchema",
    "decided",
    "decimal_comma",
    "parse_column",
    "parse_labels",
    "parse_times",
    "refused_dates",
]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ]\d\d?:\d\d.*)?$")
#: Months, and how their first day is written; the year stands first and has four digits, so nothing else is meant.
MONTHS = ((r"^(\d{4})[-/](\d)$", r"\1-0\2-01"), (r"^(\d{4})[-/](\d\d)$", r"\1-\2-01"))
#: Numbers that nothing but a number can be, without spaces around them.
PLAIN = r"^[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"
_NOT_FINITE = re.compile(r" *[+-]?(inf|infinity|nan) *$", re.IGNORECASE)
_NUMBER, _PERCENT, _THOUSANDS = re.compile(NUMBER), re.compile(PERCENT), re.compile(THOUSANDS)
_DECIMAL_COMMA = re.compile(DECIMAL_COMMA)


@dataclass
class StreamSchema:
    """What is done with the columns of a table; stored with the model.

    Attributes
    ----------
    target, by : str
        The column to predict, and the one that orders the rows, if any.
    drop, text : lists of str
        Columns that are left out, and those that are text whatever they look like.
    task : "classify" or "regress"
    labels : "whole", "truth" or "text"
        What classes are, if they look like it.
    levels : dict
        The texts of each column that have a feature, in the order in which they came.
    most : int
        Texts of a column that may have one.
    """

    target: str
    by: str | None = None
    drop: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    task: str = "classify"
    labels: str = "text"
    levels: dict[str, list[str]] = field(default_factory=dict)
    most: int = 50
    columns: list[str] = field(default_factory=list)

    @property
    def features(self) -> list[str]:
        """Columns that are learned from."""
        others = {self.target, self.by, *self.drop}
        return [name for name in self.columns if name not in others]

    def feature(self, column: str, text: str) -> str:
        """The feature of a text."""
        name = f"{column}={text}"
        return f"{name} (2)" if name in self.columns else name

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Any) -> StreamSchema:
        """The inverse; nothing is believed."""
        recipe = cls(**stored)
        lists = [recipe.drop, recipe.text, recipe.columns, *recipe.levels.values()]
        texts = [recipe.target, *(name for names in lists for name in names)]
        sound = all(isinstance(names, list) for names in lists) and all(isinstance(text, str) for text in texts)
        sound = sound and recipe.task in ("classify", "regress") and recipe.labels in ("whole", "truth", "text")
        if not sound or not isinstance(recipe.most, int) or not isinstance(recipe.by, (str, type(None))):
            raise ValueError("its recipe makes no sense")
        return recipe


class Parsed(NamedTuple):
    """A column of some rows."""

    numbers: F64  # NaN where there is none
    codes: I64  # which of the texts; -1 where there is none
    texts: list[str]
    infinite: int  # the first row that holds an infinite number, which is taken as missing; -1 if none does

    @property
    def given(self) -> NDArray[np.bool_]:
        """Where the cell is not missing."""
        found: NDArray[np.bool_] = (self.codes >= 0) | (self.numbers == self.numbers)
        return found


def parse_column(values: Any, text: bool = False, separator: str = ",") -> Parsed:
    """The cells of a column: as written, or with types.

    >>> import pyarrow as pa
    >>> found = parse_column(pa.chunked_array([["1.5", "red", None, "007", "5%"]]))
    >>> found.numbers.tolist(), found.codes.tolist(), found.texts
    ([1.5, nan, nan, nan, 5.0], [-1, 0, -1, 1, -1], ['red', '007'])
    """
    import pyarrow as pa
    from pyarrow import compute, types

    held, nothing = values.type, np.full(len(values), -1, np.int64)
    if types.is_dictionary(held):
        values, text = values.cast(held.value_type), True
        held = values.type
    if types.is_string_view(held) or (text and not _is_text(held) and not types.is_null(held)):
        values = values.cast("string")
        held = values.type
    if types.is_null(held):
        return Parsed(np.full(len(values), np.nan), nothing, [], -1)
    if not _is_text(held):
        return _checked(_floats(values), nothing, [])
    if not text:
        try:
            plain = compute.utf8_trim(values, " ")
            if compute.all(compute.match_substring_regex(plain, PLAIN)).as_py() is not False:
                return _checked(_floats(plain), nothing, [])
        except pa.ArrowInvalid:  # a spelling that it does not know, such as +1
            pass
    return _by_text(values, text, separator)


def _is_text(held: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(held) or types.is_large_string(held) or types.is_string_view(held))


def _floats(values: Any) -> F64:
    whole = values.cast("float64", safe=False)
    return np.array(np.from_dlpack(_filled(whole, np.nan)), np.float64)


def _filled(values: Any, nothing: Any) -> Any:
    """One array without gaps: to_numpy() of one with gaps imports pandas, which takes long."""
    import pyarrow as pa

    filled = values.fill_null(nothing) if values.null_count else values
    return filled.combine_chunks() if isinstance(filled, pa.ChunkedArray) else filled


def _checked(numbers: F64, codes: I64, texts: list[str]) -> Parsed:
    infinite = np.isinf(numbers)
    at = int(infinite.argmax()) if infinite.any() else -1
    numbers[infinite] = np.nan
    return Parsed(numbers, codes, texts, at)


def _by_text(values: Any, text: bool, separator: str) -> Parsed:
    """Every different text is looked at once."""
    different, places = _different(values)
    numbers, levels = np.full(len(different) + 1, np.nan), np.full(len(different) + 1, -1, np.int64)
    texts: dict[str, int] = {}
    for k, cell in enumerate(different):
        number = None if text else _number(cell, separator)
        if number is None:
            levels[k] = texts.setdefault(cell.strip(), len(texts))
        else:
            numbers[k] = number
    return _checked(numbers[places], levels[places], list(texts))


def _different(values: Any) -> tuple[list[Any], I64]:
    """The different values, and which of them each one is; -1 if it is missing."""
    from pyarrow import types

    if types.is_null(values.type) or len(values) == 0:
        return [], np.full(len(values), -1, np.int64)
    packed = values.combine_chunks().dictionary_encode()
    if hasattr(packed, "chunks"):
        packed = packed.combine_chunks()
    places = np.from_dlpack(_filled(packed.indices, -1)).astype(np.int64)
    return packed.dictionary.to_pylist(), places


def _number(cell: str, separator: str) -> float | None:
    """The number that a text is, if it is one."""
    if cell in TRUTH:
        return float(TRUTH[cell])
    if _NUMBER.match(cell):
        return None if re.match(r" *[+-]?0\d", cell) else float(cell)
    if separator == "," and _THOUSANDS.match(cell):
        return float(cell.replace(",", ""))
    if _PERCENT.match(cell):
        return float(cell.replace("%", ""))
    return float(cell) if _NOT_FINITE.match(cell) else None


def refused_dates(column: str, values: Any, row: int) -> str | None:
    """What to say about a column that begins with a date or a time, if it does."""
    from pyarrow import types

    cell: Any = str(values.type)
    if not types.is_temporal(values.type):
        at = next((k for k, value in enumerate(values[:100]) if value.is_valid), None)
        cell = None if at is None else values[at].as_py()
        if at is None or not isinstance(cell, str) or not DATE.match(cell.strip()):
            return None
        row += at
    return (
        f"column {shown(column)} holds dates or times ({cell} in row {row:,}); --by {shown(column)} if it orders the "
        f"rows, --drop {shown(column)} if not"
    )


def decimal_comma(parsed: Parsed) -> int:
    """The first row that holds a number with a decimal comma, which as a text would be useless; -1 if none does."""
    commas = [k for k, text in enumerate(parsed.texts) if "," in text and _DECIMAL_COMMA.match(text)]
    found = np.isin(parsed.codes, commas) if commas else np.zeros(1, np.bool_)
    return int(found.argmax()) if found.any() else -1


# -- the target ----------------------------------------------------------------------------------------------------


class Labels(NamedTuple):
    """Classes of some rows."""

    values: list[Any]  # the different ones
    codes: I64  # which of them; -1 where there is none


def parse_labels(values: Any, kind: str) -> Labels:
    """The classes of a column.

    >>> import pyarrow as pa
    >>> parse_labels(pa.chunked_array([["1", None, "x", "1.0"]]), "whole")
    Labels(values=[1, 'x'], codes=array([ 0, -1,  1,  0]))
    """
    from pyarrow import types

    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    different, places = _different(values)
    found: dict[Any, int] = {}
    numbers = []
    for cell in different:
        label = _label(cell, kind)
        # 1 and True are the same key, so a class is known by its text
        numbers.append(-1 if label is None else found.setdefault((type(label), label), len(found)))
    return Labels([label for _, label in found], np.array([*numbers, -1], np.int64)[places])


def _label(cell: Any, kind: str) -> Any:
    if isinstance(cell, float):
        return None if cell != cell else int(cell) if cell.is_integer() and abs(cell) < 2**63 else str(cell)
    if not isinstance(cell, str):
        return cell if isinstance(cell, (bool, int)) else str(cell)
    text = cell.strip()
    if kind == "truth" and text in TRUTH:
        return TRUTH[text]
    if kind == "whole" and _NUMBER.match(text) and not re.match(r"[+-]?0\d", text):
        value = float(text)
        if value.is_integer() and abs(value) < 2**63:
            return int(text) if re.fullmatch(r"[+-]?\d+", text) else int(value)
    return text


def decided(columns: Sequence[Any], task: str, last: bool) -> tuple[str, str, str] | None:
    """From the targets of the first rows: task, what labels are, and why. None if more rows must be seen.

    Texts and truth values are classes, numbers with fractions are amounts; whole numbers are classes if there are at
    most 20 different ones, each two times or more on average (or just two different ones).
    """
    import pyarrow as pa
    from pyarrow import types

    values = pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)
    count = len(values) - values.null_count
    if count == 0 and not last:
        return None
    packed = types.is_dictionary(values.type)
    parsed = parse_column(values, text=packed)
    different, _ = _different(values.cast(values.type.value_type) if packed else values)
    cells = [cell.strip() if isinstance(cell, str) else cell for cell in different]
    if types.is_boolean(values.type) or (cells and all(cell in TRUTH for cell in cells)):
        return _given(task, "classify", "truth", "true and false, taken as classes")
    if parsed.texts or not cells:
        return _given(task, "classify", "text", f"{len(cells):,} different texts so far, taken as classes")
    numbers = parsed.numbers[parsed.numbers == parsed.numbers]
    if (numbers % 1 != 0).any():
        why = "numbers with fractions, taken as amounts (for classes, write them as text or whole numbers)"
        return _given(task, "regress", "text", why)
    kinds = len(np.unique(numbers))
    if task == "auto" and not last and kinds <= FEW_CLASSES:
        return None
    what = f"{kinds:,} different whole numbers in the first {count:,} rows"
    if kinds <= FEW_CLASSES and (kinds <= 2 or kinds <= count / 2):
        return _given(task, "classify", "whole", f"{what}, taken as classes; --task regress takes them as amounts")
    return _given(task, "regress", "whole", f"{what}, taken as amounts; --task classify takes them as classes")


def _given(task: str, found: str, labels: str, why: str) -> tuple[str, str, str]:
    return (found, labels, why) if task == "auto" else (task, labels, "")


# -- the order -------------------------------------------------------------------------------------------------------


def parse_times(values: Any, kind: str | None = None) -> tuple[str, F64 | I64, int]:
    """Numbers, or times in microseconds: which of the two, they, and how many of them make sense.

    Missing ones are NaN, or the smallest number. Without a kind the first cell decides. A month is its first day.

    >>> import pyarrow as pa
    >>> kind, times, good = parse_times(pa.chunked_array([["2024-03", "2024/3", "2024-03-01", "2024-13"]]))
    >>> kind, times.astype("datetime64[us]").astype("datetime64[D]").astype(str).tolist(), good
    ('time', ['2024-03-01', '2024-03-01', '2024-03-01'], 3)
    """
    import pyarrow as pa
    from pyarrow import compute, types

    held = values.type
    if types.is_temporal(held):
        moments = values if types.is_time(held) or types.is_duration(held) else values.cast(pa.timestamp("us"))
        return "time", _micros(moments.cast("int64")), len(values)
    if types.is_null(held):
        return kind or "number", np.full(len(values), np.nan), len(values)
    if not _is_text(held):
        return "number", _floats(values), len(values)
    plain = compute.utf8_trim(values, " ")
    if kind is None:
        cell = next((cell.as_py() for cell in plain if cell.is_valid), "0")
        kind = "number" if _NUMBER.match(cell) else "time"

    def cast(count: int) -> F64 | I64 | None:
        try:
            part = plain.slice(0, count)
            return _floats(part) if kind == "number" else _micros(_as_times(part).cast("int64"))
        except pa.ArrowInvalid:
            return None

    good, bad, found = 0, len(plain) + 1, cast(len(plain))
    if found is not None:
        return kind, found, len(plain)
    while bad - good > 1:  # what holds of many holds of fewer
        middle = (good + bad) // 2
        good, bad = (middle, bad) if cast(middle) is not None else (good, middle)
    found = cast(good)
    assert found is not None
    return kind, found, good


def _as_times(plain: Any) -> Any:
    """With a zone or without; months as 2024-03, 2024-3 or 2024/03, which the cast does not know."""
    import pyarrow as pa
    from pyarrow import compute

    for pattern, day in MONTHS:
        plain = compute.replace_substring_regex(plain, pattern, day)
    try:
        return plain.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return plain.cast(pa.timestamp("us", "UTC"))


def _micros(values: Any) -> I64:
    least = np.iinfo(np.int64).min
    return np.array(np.from_dlpack(_filled(values, least)), np.int64)
