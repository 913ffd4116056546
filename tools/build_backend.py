"""The build backend: scikit-build-core, with the compiler of the `ziglang` wheel if there is no other one.

g++ from version 12 on or clang compiles the core. `MESHNN_ZIG=1` forces ziglang; then `MESHNN_GLIBC=2.28` sets the
oldest glibc on which the result must run.
"""

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from scikit_build_core import build as _build
from scikit_build_core.build import (  # noqa: F401
    get_requires_for_build_sdist,
)

ROOT = Path(__file__).resolve().parents[1]
OLDEST_GCC = 12


def _usable_compiler() -> bool:
    """Return whether there is a C++ compiler that can build the core."""
    if os.environ.get("MESHNN_ZIG"):
        return False
    named = os.environ.get("CXX")
    for command in [named.split()[0]] if named else ["c++", "g++", "clang++"]:
        if shutil.which(command) is None:
            continue
        macros = subprocess.run(
            [command, "-dM", "-E", "-x", "c++", "-"], input="", capture_output=True, text=True, check=False
        )
        found = dict(line.split(" ", 2)[1:] for line in macros.stdout.splitlines() if line.count(" ") >= 2)
        if macros.returncode == 0 and ("__clang__" in found or int(found.get("__GNUC__", 0)) >= OLDEST_GCC):
            return True
    return False


def _with_zig() -> bool:
    """Make CMake use ziglang if there is no other compiler. Its C compiler is used, because it needs no C++ runtime."""
    if _usable_compiler():
        return False
    try:
        import ziglang  # noqa: F401
    except ImportError:
        raise SystemExit(
            "meshnn: no C++ compiler was found. Install g++ 12 or later, or clang (Debian, Ubuntu: apt-get install "
            "g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install), or run: pip install ziglang"
        ) from None
    folder = Path(tempfile.mkdtemp(prefix="meshnn-zig-"))
    target = ""
    if glibc := os.environ.get("MESHNN_GLIBC"):
        target = f"-target {platform.machine()}-linux-gnu.{glibc}"
    for name, tool in (("cc", f"cc {target}"), ("ar", "ar"), ("ranlib", "ranlib")):
        script = folder / (f"{name}.bat" if os.name == "nt" else name)
        call = f'"{sys.executable}" -m ziglang {tool}'
        script.write_text(f"@{call} %*\r\n" if os.name == "nt" else f'#!/bin/sh\nexec {call} "$@"\n')
        script.chmod(0o755)
    os.environ["CC"] = os.environ["CXX"] = str(folder / "cc")
    os.environ["SKBUILD_BUILD_DIR"] = str(folder / "build")  # the folder of another compiler would keep that compiler
    defines = f"-DMESHNN_ZIG=ON -DCMAKE_AR={folder / 'ar'} -DCMAKE_RANLIB={folder / 'ranlib'}"
    os.environ["CMAKE_ARGS"] = f"{os.environ.get('CMAKE_ARGS', '')} {defines}".strip()
    print("meshnn: building with the compiler of the ziglang package", file=sys.stderr)
    return True


def _requires(found: list[str]) -> list[str]:
    return found if _usable_compiler() else [*found, "ziglang>=0.13"]


def get_requires_for_build_wheel(config_settings=None):
    """Return the requirements of a wheel besides the compiler."""
    return _requires(_build.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings=None):
    """Return the requirements of an editable installation besides the compiler."""
    return _requires(_build.get_requires_for_build_editable(config_settings))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build a wheel."""
    _with_zig()
    return _build.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Build an editable installation: the core is written to the source tree, which a .pth file adds to the path."""
    _with_zig()
    name = _build.build_editable(wheel_directory, config_settings, metadata_directory)
    source, wheel = ROOT / "src", Path(wheel_directory) / name
    with zipfile.ZipFile(wheel) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    kept = {entry: data for entry, data in files.items() if ".dist-info/" in entry and not entry.endswith("/RECORD")}
    for entry, data in files.items():
        if entry.startswith("meshnn/_core."):
            place = source / entry
            place.unlink(missing_ok=True)  # running processes keep the old file
            place.write_bytes(data)
            place.chmod(0o755)
    kept["meshnn.pth"] = f"{source}\n".encode()
    record = next(entry for entry in files if entry.endswith("/RECORD"))
    lines = [f"{entry},sha256={_digest(data)},{len(data)}" for entry, data in kept.items()]
    kept[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    with zipfile.ZipFile(wheel, "w") as archive:
        for entry, data in kept.items():
            archive.writestr(entry, data)
    return name


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_sdist(sdist_directory, config_settings=None):
    """Build a source distribution."""
    return _build.build_sdist(sdist_directory, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write the metadata of a wheel."""
    return _build.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    """Write the metadata of an editable installation."""
    return _build.prepare_metadata_for_build_editable(metadata_directory, config_settings)
