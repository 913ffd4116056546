"""Pictures one after the other, as a GIF and, where ffmpeg is installed, an MP4."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshnn.files import write_whole

__all__ = ["save_frames"]

#: Colours of a GIF, and milliseconds of a frame and of the last one.
COLOURS, DURATION, LAST = 48, 90, 1800


def save_frames(pictures: Sequence[NDArray[np.uint8]], path: Path) -> list[Path]:
    """Write a .gif, and an .mp4 beside it if ffmpeg is there; the paths that were written."""
    from PIL import Image

    content = io.BytesIO()
    # one palette for all frames, from several of them: colours do not flicker
    sample = np.concatenate([pictures[k] for k in np.linspace(0, len(pictures) - 1, 5).astype(int)])
    palette = Image.fromarray(sample).quantize(COLOURS, dither=Image.Dither.NONE)
    frames = [Image.fromarray(p).quantize(palette=palette, dither=Image.Dither.NONE) for p in pictures]
    durations = [DURATION] * (len(frames) - 1) + [LAST]
    options: dict[str, Any] = {"append_images": frames[1:], "duration": durations, "loop": 0, "optimize": True}
    frames[0].save(content, format="GIF", save_all=True, **options)
    write_whole(path, [content.getvalue()])
    film = path.with_suffix(".mp4")
    return [path, film] if _save_film(pictures, film) else [path]


def _save_film(pictures: Sequence[NDArray[np.uint8]], path: Path) -> bool:
    """Whether ffmpeg is there and could write it."""
    program = shutil.which("ffmpeg")
    if program is None:
        return False
    even = [p[: p.shape[0] // 2 * 2, : p.shape[1] // 2 * 2] for p in pictures]  # the codec wants even sides
    even += [even[-1]] * (LAST // DURATION)
    height, width = even[0].shape[:2]
    rate, size = f"{1000 / DURATION:.3f}", f"{width}x{height}"
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", rate, "-i", "-"]
    target = ["-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    command = [program, "-y", "-loglevel", "error", *source, *target]
    data = b"".join(np.ascontiguousarray(p).tobytes() for p in even)
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    if done.returncode != 0:
        path.unlink(missing_ok=True)
    return done.returncode == 0
