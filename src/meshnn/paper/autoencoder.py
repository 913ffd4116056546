"""The paper's convolutional auto-encoder, in PyTorch: pictures of 28 by 28 to 32 features and back.

28 -> conv 3x3/3 pad 1 -> 10 -> pool 2/2 -> 5 -> conv 3x3/2 pad 1 -> 3 -> pool 2/1 -> 2, eight channels: 32 features.
The paper writes stride 2 for the second pool, which would leave 8 features; its decoder (2 -> 5 -> 15 -> 28) shows that
stride 1 is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

__all__ = ["encode", "reconstruct", "train_autoencoder"]

Pictures = NDArray[np.uint8]
Floats = NDArray[np.float32]
BATCH = 128


def _nets() -> tuple[Any, Any]:
    encoder = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Conv2d(16, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2, stride=1),
    )  # fmt: skip
    decoder = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 5, stride=3, padding=1), nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 2, stride=2, padding=1), nn.Tanh(),
    )  # fmt: skip
    return encoder, decoder


def _tensor(pictures: Pictures) -> Any:
    """From -1 to 1, one channel."""
    return torch.tensor(pictures.astype(np.float32) / 127.5 - 1).unsqueeze(1)


def _load(weights: dict[str, Floats]) -> tuple[Any, Any]:
    encoder, decoder = _nets()
    for name, net in (("encoder", encoder), ("decoder", decoder)):
        prefix = f"{name}."
        held = {k.removeprefix(prefix): torch.tensor(v) for k, v in weights.items() if k.startswith(prefix)}
        net.load_state_dict(held)
    return encoder, decoder


def train_autoencoder(
    pictures: Pictures, epochs: int, seed: int, tell: Callable[[int, float], None] | None = None
) -> dict[str, Floats]:
    """Weights by name, after so many passes with Adam; `tell` is given the epoch and its mean squared error."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder, decoder = _nets()
        net = torch.nn.Sequential(encoder, decoder)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-5)
        x = _tensor(pictures)
        for epoch in range(1, epochs + 1):
            total = 0.0
            order: Any = torch.randperm(len(x))
            for rows in order.split(BATCH):
                batch = x[rows]
                loss = ((net(batch) - batch) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(rows)
            if tell is not None:
                tell(epoch, total / len(x))
    named = {"encoder": encoder, "decoder": decoder}
    return {f"{k}.{name}": value.numpy() for k, part in named.items() for name, value in part.state_dict().items()}


def encode(weights: dict[str, Floats], pictures: Pictures) -> Floats:
    """Features (n, 32)."""
    encoder, _ = _load(weights)
    with torch.no_grad():
        parts = [encoder(_tensor(pictures[k : k + 5000])).flatten(1).numpy() for k in range(0, len(pictures), 5000)]
    return np.concatenate(parts)


def reconstruct(weights: dict[str, Floats], pictures: Pictures) -> Pictures:
    """What the decoder makes of the features."""
    encoder, decoder = _load(weights)
    with torch.no_grad():
        back = decoder(encoder(_tensor(pictures)))[:, 0].numpy()
    return np.asarray(np.clip((back + 1) * 127.5, 0, 255).round(), np.uint8)
