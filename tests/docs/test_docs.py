"""The site: every public name has a page, every example runs and draws, all links work, the build has no warnings."""

import inspect
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS, GALLERY = ROOT / "docs", ROOT / "examples" / "gallery"
EXAMPLES = sorted(GALLERY.glob("plot_*.py"))
ASKED = {"sphinx", "myst_parser", "numpydoc", "sphinx_gallery", "pydata_sphinx_theme", "sphinx_copybutton"}


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    return import_module("reference")


# -- the reference ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # warnings of other libraries on import
def test_every_public_name_has_a_page(reference, tmp_path):
    written = {path.stem: path.read_text() for path in reference.write(tmp_path / "api")}
    found = reference.modules()
    missing = {name: why for name, why in found.items() if isinstance(why, str)}
    assert {"meshnn", "meshnn.networks", "meshnn.online", "meshnn.training"} <= found.keys() - missing
    for name, module in found.items():
        if name in missing:
            assert f"``{name}``" in written["index"]
            continue
        assert f":doc:`{name} <{name}>`" in written["index"]
        assert set(reference.public_names(module)) <= set(module.__all__)
        assert name in reference.ONLY or set(reference.public_names(module)) == set(module.__all__)
        for word in reference.public_names(module):
            home = reference.pages()[f"{name}.{word}"]
            assert home in written, f"{name}.{word}"
            assert f":doc:`{word} <{home}>`" in written[name]
            kind = "autoclass" if inspect.isclass(getattr(module, word)) else "auto"
            assert f".. {kind}" in written[home]
    from meshnn.cli.commands import COMMANDS

    for command in (*COMMANDS, "reproduce"):
        assert f".. _meshnn-{command}:" in written["commands"]
    assert "``--target``, ``-y``" in written["commands"]


@pytest.mark.filterwarnings("ignore")
def test_members_are_ours(reference):
    from meshnn import MeshClassifier

    found = reference.members(MeshClassifier)
    assert found["fit"] == "automethod"
    assert found["loss_curve_"] == "autoproperty"
    assert not {"get_params", "set_fit_request", "get_metadata_routing"} & set(found)  # names of scikit-learn


# -- the site -----------------------------------------------------------------------------------------------------


class Links(HTMLParser):
    """Collects the ids, links and sources of a page."""

    def __init__(self):
        super().__init__()
        self.names, self.links, self.loaded = set(), [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon") and given.get("href"):
            self.loaded.append(given["href"])
        if given.get("src"):
            self.loaded.append(given["src"])


def read_links(page):
    found = Links()
    found.feed(page.read_text())
    return found


@pytest.mark.slow
def test_the_site(reference, tmp_path):
    """All pages are built once; examples that have not changed since the last build are not run again."""
    for library in sorted(ASKED):
        pytest.importorskip(library, reason=f"the site IS NOT TESTED without {library}: pip install '.[docs]'")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-n", "-q", str(DOCS), str(site)]
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    check_links(site, tmp_path / "links.json")
    check_names_and_pictures(site, reference)


def check_links(site, listed):
    """Check that no file is missing and none is loaded from another host; write the external links to `listed`."""
    written = [path for path in site.rglob("*.html") if "_static" not in path.parts]  # without theme templates
    pages = {path: read_links(path) for path in written}
    assert len(pages) > 100
    broken, foreign, elsewhere = [], [], {}
    for page, found in pages.items():
        for target in found.loaded:
            path = urlsplit(target)
            if path.scheme not in ("", "data"):
                foreign.append(f"{page.name}: {target}")
            elif not path.scheme and not (page.parent / unquote(path.path)).exists():
                broken.append(f"{page.name}: {target}")
        for target in found.links:
            if urlsplit(target).scheme:
                elsewhere.setdefault(target, page.name)
            elif not leads_somewhere(page, target, pages):
                broken.append(f"{page.name}: {target}")
    assert not broken, broken[:20]
    assert not foreign, foreign[:20]
    assert {urlsplit(target).scheme for target in elsewhere} <= {"https"}, elsewhere
    assert all(re.fullmatch(r"[a-z0-9.-]+\.[a-z]{2,}", urlsplit(target).netloc) for target in elsewhere), elsewhere
    listed.write_text(json.dumps(elsewhere, indent=1))
    print(*sorted(elsewhere), sep="\n")
    for style in (site / "_static").rglob("*.css"):
        assert not re.search(r"(@import\s+|url\()[\"']?https?://", style.read_text()), style.name


def leads_somewhere(page, target, pages):
    parts = urlsplit(target)
    other = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return other.exists() and (
        not parts.fragment or other not in pages or unquote(parts.fragment) in pages[other].names
    )


def check_names_and_pictures(site, reference):
    names = read_links(site / "api" / "meshnn.MeshClassifier.html").names
    assert {"meshnn.MeshClassifier", "meshnn.MeshClassifier.fit"} <= names
    for name, page in reference.pages().items():
        assert page in read_links(site / "api" / f"{page}.html").names, name
    for path in EXAMPLES:
        text = (site / "gallery" / f"{path.stem}.html").read_text()
        assert re.search(rf"sphx_glr_{path.stem}_\d+\.png", text), f"{path.name} shows no picture"
        assert "sphx-glr-script-out" in text, f"{path.name} prints nothing"
    assert "<math" in (site / "explanation" / "gradients.html").read_text()
