"""`download`: a file from the first mirror that has it; what a broken connection left is taken up again."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

__all__ = ["download"]

Progress = Callable[[str, int, int], None]
#: Seconds without a byte until a mirror counts as gone, tries for each, and seconds between tries.
TIMEOUT, TRIES, PAUSE = 30.0, 3, 1.0
BLOCK = 1 << 16


def download(mirrors: Sequence[str], name: str, folder: Path, progress: Progress) -> Path:
    """Get a file into a folder; OSError if no mirror has it.

    It is written under another name (`.part`) until it is whole. A part that is there already is gone on from, if the
    mirror can.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / name, folder / f"{name}.part"
    problems = []
    for mirror in mirrors:
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE)
            try:
                _fetch(mirror + name, part, partial(progress, name))
                os.replace(part, target)
                return target
            except urllib.error.HTTPError as error:
                problems.append(f"{mirror}: {error.code} {error.reason}")
                if error.code < 500:  # it will not have it the next time either
                    break
            except (OSError, HTTPException) as error:
                problems.append(f"{mirror}: {getattr(error, 'reason', error)}")
    raise OSError("; ".join(dict.fromkeys(problems)))


def _fetch(url: str, part: Path, tell: Callable[[int, int], Any]) -> None:
    there = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "meshnn"})
    if there:
        request.add_header("Range", f"bytes={there}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        part.unlink()  # more is there than the file has: not a part of it
        return _fetch(url, part, tell)
    with answer:
        goes_on = answer.status == 206 and (answer.headers.get("Content-Range") or "").startswith(f"bytes {there}-")
        if not goes_on:
            there = 0
        length = answer.headers.get("Content-Length")
        total = there + int(length) if length and length.isdigit() else 0
        tell(there, total)
        with open(part, "ab" if goes_on else "wb") as file:
            while block := answer.read(BLOCK):
                file.write(block)
                there += len(block)
                tell(there, total)
    if total and there < total:
        raise OSError(f"the connection broke after {there:,} of {total:,} bytes")
    return None
