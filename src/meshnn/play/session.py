"""`PlaySession`: executes orders from a page between short slices of training, and returns messages."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from meshnn.arguments import known, real_number, switch, whole_number
from meshnn.codes import ACTIVATIONS
from meshnn.errors import MeshError
from meshnn.play import views
from meshnn.play.data import SETS, PlayData, PlayTable, built_in
from meshnn.play.learners import SOLVERS
from meshnn.play.limits import LIMITS
from meshnn.play.link import checked_pace, checked_state, learning_rate
from meshnn.play.net import GRAPHS, PlayNet
from meshnn.play.outputs import exported, python_of
from meshnn.play.views import Message, json_message, packed

__all__ = ["PlaySession"]

Order = dict[str, Any]
Messages = Iterator[Message]


class PlaySession:
    """The net of one page. `receive` executes an order, `advance` trains for a moment; both return messages.

    The method `_do_edge` executes the order "edge", and so on.
    """

    def __init__(self, path: Path | None = None, target: str = "") -> None:
        self.table: PlayTable | None = None
        self.running, self.pace, self.credit = False, 100, 0.0
        self.unacknowledged, self.frame_held = 0, False
        self.last_frame = self.last_picture = self.last_slice = 0.0
        self.opening: list[Message] = []
        data = built_in("moons", 0)
        if path is not None:
            try:
                self.table = PlayTable.read(path)
                self.table.target = target
                data = self.table.samples(0)
            except MeshError as error:
                self.opening.append(json_message("error", text=str(error)))
        self.net = PlayNet.new(data)

    def receive(self, message: str) -> list[Message]:
        """Execute an order of the page. An error is returned as a one-sentence message and changes nothing."""
        try:
            order = json.loads(message)
        except (ValueError, RecursionError):
            return [json_message("error", text="the message from the page is not JSON; reload the page")]
        name = order.get("do") if isinstance(order, dict) else None
        handler = getattr(self, f"_do_{name}", None) if isinstance(name, str) else None
        if handler is None:
            return [json_message("error", text=f"the order {str(name)[:40]!r} is unknown; reload the page")]
        found: list[Message] = []  # keeps the messages before an error
        try:
            found.extend(handler(order))
        except MeshError as error:
            found.append(json_message("error", text=str(error), order=name))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            what = f"{type(error).__name__}: {error}"[:120]
            found.append(
                json_message("error", text=f"the order {name!r} is not valid ({what}); reload the page", order=name)
            )
        return found

    # -- training ------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> float:
        """The seconds until `advance` must be called if no order arrives."""
        if not self.running:
            return 60.0
        return 0.0 if self.pace == 0 or self.credit >= 1 else min(1 / self.pace, 0.02)

    def advance(self) -> list[Message]:
        """Train for a moment if training is running."""
        if not self.running:
            return []
        now = time.perf_counter()
        passed, self.last_slice = now - self.last_slice, now
        most = self.net.learner.units
        if self.pace:
            self.credit = min(self.credit + self.pace * passed, max(self.pace * 0.2, 1.0))
            most = min(most, int(self.credit))
            if most < 1:
                return []
            self.credit -= most
        return [*self._learn(most), *self._frames(only_due=True)]

    def _learn(self, most: int) -> Messages:
        net, began = self.net, time.perf_counter()
        try:
            net.result = net.learner.advance(most)
        except MeshError as error:
            self.running = False
            yield self._settings()
            yield json_message("error", text=str(error))
            return
        took, net.moved = time.perf_counter() - began, True
        highest = min(max(2 * most, net.learner.units), LIMITS.slice_units)
        net.learner.units = int(np.clip(most * LIMITS.slice / max(took, 1e-5), 1, highest))
        if net.result.note:
            yield json_message("status", text=net.result.note)
        if net.result.finished:
            self.running = False
            yield self._settings()
            yield from self._frames()

    def _do_run(self, order: Order) -> Messages:
        self.running = switch("on", order["on"])
        self.last_slice, self.credit = time.perf_counter(), 1.0
        yield self._settings()

    def _do_step(self, order: Order) -> Messages:
        self.running = False
        yield from self._learn(1 if self.net.learner.unit == "epoch" else 10)
        yield self._settings()
        yield from self._frames()

    def _do_set(self, order: Order) -> Messages:
        net = self.net
        if "rate" in order:
            net.rate = learning_rate(order["rate"])
            net.learner.set_rate(net.rate)
        if "pace" in order:
            self.pace, self.credit = checked_pace(order["pace"]), 0.0
        if "budget" in order:
            net.budget = whole_number("budget", order["budget"], most=LIMITS.edges)
        if "solver" in order:
            net.set_solver(known("solver", order["solver"], SOLVERS))
        if "ticks" in order:
            net.edit(net.sketch(), whole_number("ticks", order["ticks"], most=LIMITS.ticks))
            yield views.graph_message(net)
        if not self.running and not order.keys().isdisjoint(("solver", "ticks")):
            net.measure()
        yield self._settings()
        yield from self._frames()

    # -- messages ------------------------------------------------------------------------------------------------

    def _do_hello(self, order: Order) -> Messages:
        yield json_message(
            "hello", sets={name: chosen.title for name, chosen in SETS.items()}, solvers=SOLVERS, graphs=GRAPHS,
            activations=list(ACTIVATIONS), paces=LIMITS.paces, table=views.table_facts(self.table),
        )  # fmt: skip
        yield from self._everything()
        yield from self.opening
        self.opening = []

    def _settings(self) -> Message:
        return views.settings_message(self.net, self.running, self.pace)

    def _everything(self) -> Messages:
        yield views.data_message(self.net.data)
        yield from self._changed()

    def _changed(self) -> Messages:
        """Yield the graph, a frame and the settings, after an edit."""
        if not self.running:  # otherwise the next slice of training evaluates the net
            self.net.measure()
        yield views.graph_message(self.net)
        yield from self._frames()
        yield self._settings()

    def _frames(self, only_due: bool = False) -> Messages:
        """Yield a frame, and a picture if one is due.

        A page that has not acknowledged earlier frames gets only the newest one when it does.
        """
        now = time.perf_counter()
        if only_due and now - self.last_frame < LIMITS.frame:
            return
        if self.unacknowledged >= LIMITS.unacknowledged:
            self.frame_held = self.frame_held or not only_due
            return
        self.last_frame, self.frame_held = now, False
        self.unacknowledged += 1
        yield views.frame(self.net)
        if self.net.moved and (not only_due or now - self.last_picture >= LIMITS.picture):
            self.last_picture, self.net.moved = now, False
            yield views.picture(self.net)

    def _do_ack(self, order: Order) -> Messages:
        self.unacknowledged = max(self.unacknowledged - 1, 0)
        if self.frame_held:
            yield from self._frames()

    # -- samples -------------------------------------------------------------------------------------------------

    def _take(self, data: PlayData) -> Messages:
        before, solver = self.net.data, self.net.solver
        self.net = self.net.on(data)
        self.running = False
        if data.streams and not solver.startswith("stream"):
            self.pace = 1000
        elif before.streams and not data.streams:
            self.pace = 100
        yield from self._everything()

    def _do_data(self, order: Order) -> Messages:
        name, seed = order["name"], order.get("seed", 0)
        if name == "table":
            data = self._given_table().samples(whole_number("seed", seed, least=0, most=2**32 - 1))
        else:
            data = built_in(name, seed)
        yield from self._take(data)

    def _given_table(self) -> PlayTable:
        if self.table is None:
            raise MeshError("there is no table yet; choose a .csv file first")
        return self.table

    def _do_csv(self, order: Order) -> Messages:
        yield from self._take_table(PlayTable.parse(order["name"], order["text"]), order)

    def _do_table(self, order: Order) -> Messages:
        yield from self._take_table(self._given_table(), order)

    def _take_table(self, table: PlayTable, order: Order) -> Messages:
        """Train on a table; a table without a usable target is kept, so that another target can be chosen."""
        self.table = table.with_choices(order)
        yield json_message("table", **views.table_facts(self.table))
        yield from self._take(self.table.samples(self.net.data.seed))

    def _do_sample(self, order: Order) -> Messages:
        data = self.net.data
        if "index" in order:
            raw = data.raw[whole_number("row", order["index"], least=0, most=len(data.raw) - 1)]
        else:
            bound = ("a number from -1e9 to 1e9", lambda v: -1e9 <= v <= 1e9)
            raw = np.array([real_number("point", value, *bound) for value in order["point"]])
            if len(raw) != len(data.features):
                raise MeshError(f"a point needs {len(data.features)} numbers, got {len(raw)}")
        self.net.sample = data.scaling.inputs(raw[None])
        yield from self._frames()

    # -- edits ---------------------------------------------------------------------------------------------------

    def _do_activation(self, order: Order) -> Messages:
        kind = known("activation", order["name"], ACTIVATIONS)
        self.net.edit(self.net.sketch().with_activation(str(order["id"]), kind))
        yield from self._changed()

    def _do_edge(self, order: Order) -> Messages:
        src, dst, sketch = str(order["src"]), str(order["dst"]), self.net.sketch()
        add = switch("add", order["add"])
        self.net.edit(sketch.with_edge(src, dst, self.net.rng) if add else sketch.without_edges({(src, dst)}))
        yield from self._changed()

    def _do_neuron(self, order: Order) -> Messages:
        sketch = self.net.sketch()
        if switch("add", order["add"]):
            kind = next(iter(sketch.hidden.values()), "tanh")
            wanted, name = sketch.with_neuron(switch("bare", order.get("bare", False)), kind, self.net.rng)
            messages = [json_message("born", id=name)]
        else:
            wanted, messages = sketch.without_neuron(str(order["id"])), []
        self.net.edit(wanted)
        yield from self._changed()
        yield from messages

    def _do_grow(self, order: Order) -> Messages:
        text = self.net.grow() if order["do"] == "grow" else self.net.prune()
        yield from self._changed()
        yield json_message("status", text=text)

    _do_prune = _do_grow

    def _do_undo(self, order: Order) -> Messages:
        self.net.undo(redo=order["do"] == "redo")
        yield from self._changed()

    _do_redo = _do_undo

    def _do_reset(self, order: Order) -> Messages:
        self.net.redraw(whole_number("seed", order.get("seed", 0), least=0, most=2**32 - 1))
        yield from self._changed()

    def _do_new(self, order: Order) -> Messages:
        kind = known("graph", order["graph"], GRAPHS)
        hidden = whole_number("hidden", order.get("hidden", self.net.data.hidden), least=0, most=100)
        self.net = self.net.replaced(kind, hidden)
        yield from self._changed()

    def _do_scores(self, order: Order) -> Messages:
        """Yield gradients of absent edges: of one edge, of all that leave a neuron, or the largest of all."""
        names = {name: k for k, name in enumerate(self.net.names)}
        src, dst = (names.get(str(order[end]), -1) if end in order else None for end in ("src", "dst"))
        if src == -1 or dst == -1:
            raise MeshError("the neuron has been removed")
        sources, targets, scores = self.net.absent(src, dst)
        best = np.argsort(-np.abs(scores), kind="stable")
        best = best if src is not None else best[: LIMITS.candidates]
        found = [[self.net.names[sources[k]], self.net.names[targets[k]], float(scores[k])] for k in best.tolist()]
        yield json_message("scores", edges=found, src=order.get("src"), dst=order.get("dst"), version=self.net.version)

    # -- files and links -----------------------------------------------------------------------------------------

    def _do_export(self, order: Order) -> Messages:
        name, content = exported(str(order["what"]), self.net)
        yield packed("file", {"content": np.frombuffer(content, np.uint8)}, name=name)

    def _do_python(self, order: Order) -> Messages:
        net = self.net
        yield json_message("python", text=python_of(net.mesh, net.data, net.solver, net.rate, net.learner.done))

    def _do_restore(self, order: Order) -> Messages:
        state, table = checked_state(order["state"]), None
        if state.table is None:
            data = built_in(state.name, state.seed)
        else:
            held, name, text = self.table, str(state.table["name"]), state.table["text"]
            if text:
                held = PlayTable.parse(name, text)
            elif held is None or held.name != name:
                raise MeshError(f"this link needs the table {name[:80]}, which is too large for it: "
                                "load the table first, then open the link again")  # fmt: skip
            table = held.with_choices(state.table)
            data = table.samples(state.seed)
        self.net, self.pace = PlayNet.restored(state, data), state.pace
        if table is not None:
            self.table = table
            yield json_message("table", **views.table_facts(table))
        yield from self._everything()
