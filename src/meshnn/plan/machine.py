"""The machine that a price is of: its caches, and where its prices are kept once they have been measured."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from meshnn import _core
from meshnn.files import explained, write_whole
from meshnn.plan.prices import DEFAULT, Prices, as_prices

__all__ = ["cache_sizes", "known_prices", "price_files", "processor", "save_prices"]

_CPU = Path("/sys/devices/system/cpu/cpu0/cache")


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What it calls itself."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(named, platform.machine())


def cache_sizes(folder: Path = _CPU) -> tuple[float, float, float]:
    """Bytes of the three data caches of a core; those of the default prices if the system does not say.

    The last one is shared with whoever else runs on the processor, so a core counts on 64 MiB of it at most.
    """
    found = dict(zip((1, 2, 3), DEFAULT.caches, strict=True))
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction" and int(level) in found:
                found[int(level)] = float(size.removesuffix("K")) * 1024.0
        except (OSError, ValueError):
            continue
    return found[1], max(found[1], found[2]), max(found[2], min(found[3], 64.0 * 2**20))


def price_folder() -> Path:
    """Return `$XDG_CACHE_HOME/meshnn` or `~/.cache/meshnn`."""
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home, as in some containers
        home = Path(tempfile.gettempdir())
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "meshnn"


def price_files() -> list[Path]:
    """All that were kept, also for older kernels."""
    return sorted(price_folder().glob("meshnn-prices-*.json"))


@lru_cache(maxsize=1)
def _kernels() -> bytes:
    """Return a stamp of the compiled core and of the instruction set it runs."""
    return hashlib.sha256(Path(_core.__file__).read_bytes() + _core.isa.encode()).digest()


def _file() -> Path:
    """Where the prices of this processor and these kernels are."""
    key = hashlib.sha256(f"{processor()} {cache_sizes()}".encode() + _kernels()).hexdigest()[:16]
    return price_folder() / f"meshnn-prices-{key}.json"


def known_prices() -> Prices | None:
    """What was measured on this machine with these kernels, if anything was."""
    try:
        return as_prices(json.loads(_file().read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_prices(prices: Prices) -> Path:
    """Keep the prices of this machine."""
    path = _file()
    with explained("write", str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [(json.dumps(asdict(prices), indent=1) + "\n").encode()])
    return path
