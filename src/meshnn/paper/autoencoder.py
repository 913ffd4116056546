"""The paper's convolutional auto-encoder in PyTorch: from images of 28 by 28 to 32 features and back.

28 -> conv 3x3/3 pad 1 -> 10 -> pool 2/2 -> 5 -> conv 3x3/2 pad 1 -> 3 -> pool 2/1 -> 2, eight channels: 32 features.
The paper states stride 2 for the second pool, which would leave 8 features. Its decoder (2 -> 5 -> 15 -> 28) implies
stride 1.
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


def _net() -> Any:
    """Return encoder and decoder in sequence."""
    encoder = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Conv2d(16, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2, stride=1),
    )  # fmt: skip
    decoder = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 5, stride=3, padding=1), nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 2, stride=2, padding=1), nn.Tanh(),
    )  # fmt: skip
    return nn.Sequential(encoder, decoder)


def _tensor(pictures: Pictures) -> Any:
    """Return images as floats from -1 to 1 with one channel."""
    return torch.tensor(pictures.astype(np.float32) / 127.5 - 1).unsqueeze(1)


def train_autoencoder(pictures: Pictures, epochs: int, seed: int, report: Callable[[int, float], None]) -> Any:
    """Return a net trained with Adam; `report` receives every epoch and its mean squared error."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = _net()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-5)
        x = _tensor(pictures)
        for epoch in range(1, epochs + 1):
            total = 0.0
            order: Any = torch.randperm(len(x))
            for rows in order.split(128):
                batch = x[rows]
                loss = ((net(batch) - batch) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(rows)
            report(epoch, total / len(x))
    return net


@torch.no_grad()
def encode(net: Any, pictures: Pictures) -> NDArray[np.float32]:
    """Return features (n, 32)."""
    return np.concatenate([net[0](part).flatten(1).numpy() for part in _tensor(pictures).split(5000)])


@torch.no_grad()
def reconstruct(net: Any, pictures: Pictures) -> Pictures:
    """Return images after encoder and decoder."""
    back = net(_tensor(pictures))[:, 0].numpy()
    return np.asarray(np.clip((back + 1) * 127.5, 0, 255).round(), np.uint8)
