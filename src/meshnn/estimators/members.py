"""`choose_members`: the members of an ensemble, from the parameters and the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshnn.arguments import whole_number
from meshnn.errors import MeshError, warn
from meshnn.estimators.builder import same
from meshnn.estimators.embedding import WIDEST, Embedding, ramps_of
from meshnn.estimators.merging import Transform
from meshnn.training.callbacks import TimeLimit, as_callbacks

if TYPE_CHECKING:
    from meshnn.estimators.data import ArrayData, OutOfCoreData
    from meshnn.estimators.params import Parameters
    from meshnn.estimators.preprocessing import Preprocessing

#: Minimum number of rows for ramps by default.
FEWEST = 100


def choose_members(
    params: Parameters, data: ArrayData | OutOfCoreData, learned: Preprocessing
) -> tuple[list[Transform], int]:
    """Return the transform of the inputs of each candidate, every second one with ramps, and the number to train.

    By default there are two members, unless a parameter describes the net or its edges, or nothing has ramps.
    """
    p: Any = params
    rows, described = data.in_memory_rows, p.mesh is not None or p.structure is not None
    own = (same(p.hidden, "auto"), same(p.activation, "auto"), p.ticks is None, p.l1 == 0.0)
    usual = all(own) and rows and not described and learned.transform is None and data.n_samples >= FEWEST
    usual = usual and learned.width < WIDEST
    automatic, chosen = same(p.n_members, "auto"), same(p.embedding, "auto")
    count = 1 + usual if automatic else whole_number("n_members", p.n_members)
    if chosen:
        ramps = ramps_of(data.n_samples, learned.width) if usual and (count > 1 or same(p.l2, "auto")) else None
    else:
        ramps = None if p.embedding is None else whole_number("embedding", p.embedding)
    if (count > 1 or ramps is not None) and (described or not rows):
        what = "a graph of their own; leave out mesh and structure" if rows else "rows in memory"
        raise MeshError(f"embedding and n_members need {what}, or set embedding=None and n_members=1")
    embedding = None if ramps is None else Embedding.learn(data.scaled_rows(learned), ramps)
    if embedding is None and ramps is not None and not chosen:
        warn("no column has ramps: all have at most two values, or there are too many columns")
    if embedding is None and automatic:
        return [learned.transform], 1
    limited = any(isinstance(each, TimeLimit) for each in as_callbacks(p.callbacks))
    if count == 1 and (embedding is None or not chosen or limited):
        return [learned.transform if embedding is None or chosen else embedding], 1
    return [embedding if k % 2 else None for k in range(max(count, 2))], count
