"""A session of `meshnn play` together with the state of its page."""

import json
import struct

import numpy as np

from meshnn.play.session import PlaySession

#: Two linearly separable classes.
SEPARABLE = "a,b,kind\n" + "".join(f"{k % 17 - 8},{k % 5},{'left' if k % 17 < 8 else 'right'}\n" for k in range(170))


def unpacked(message):
    """Return the header and the arrays of a message."""
    (length,) = struct.unpack_from("<I", message)
    head, at, arrays = json.loads(message[4 : 4 + length]), 4 + length, {}
    for name, kind, count in head.pop("arrays"):
        arrays[name] = np.frombuffer(message, f"<{kind}", count, at)
        at += arrays[name].nbytes
    return head, arrays


def read(message):
    return json.loads(message) if isinstance(message, str) else unpacked(message)[0]


class Page:
    """A session, and the state that its page would have."""

    def __init__(self, *given):
        self.session = PlaySession(*given)
        self.heard = []
        self.do("hello")

    @property
    def net(self):
        return self.session.net

    def do(self, order, **fields):
        found = [read(m) for m in self.session.receive(json.dumps({"do": order} | fields))]
        self.heard += found
        for message in found:
            if message["kind"] == "frame":
                found += self.do("ack")
        return found

    def refused(self, order, **fields):
        (found,) = [m for m in self.do(order, **fields) if m["kind"] == "error"]
        return found["text"]

    def last(self, kind):
        return [m for m in self.heard if m["kind"] == kind][-1]

    @property
    def edges(self):
        return self.net.sketch().edges

    def learn(self, steps):
        """Train for a number of epochs or samples."""
        for _ in range(steps):
            self.net.result = self.net.learner.advance(1)

    def loss(self):
        return self.net.samples.evaluate(self.net.mesh, 1)[0]
