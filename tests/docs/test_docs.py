"""The site: every public name has a page, every example runs and draws, no link leads nowhere, no warning is given."""

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


def text_blocks(page, kind="python"):
    return re.findall(rf"```{kind}\n(.*?)```", page.read_text(), re.DOTALL)


# -- the reference ------------------------------------------------------------------------------------------------


def modules_with_public_names():
    """All modules of the package that say what is public, by the names of their files."""
    found = set()
    for path in (ROOT / "src/meshnn").rglob("*.py"):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if "__all__" in path.read_text():
            found.add(name)
    return found


def test_the_modules_of_the_reference_exist(reference):
    listed = {name for group in reference.PUBLIC.values() for name in group}
    absent = listed - modules_with_public_names()
    assert absent <= {"meshnn.torch", "meshnn.jax"}  # that may be added
    pages = {"meshnn.networks", "meshnn.plots", "meshnn.streaming", "meshnn.online", "meshnn.export", "meshnn.neat",
             "meshnn.training", "meshnn.training.structure", "meshnn.losses", "meshnn.tables.synthetic"}  # fmt: skip
    assert pages <= listed
    integrations = {f"meshnn.integrations.{path.stem}" for path in (ROOT / "src/meshnn/integrations").glob("[!_]*.py")}
    # what people see of these is another module
    parts = {f"meshnn.integrations.{name}" for name in (
        "torch_layer", "torch_ops", "torch_pure", "torch_sequential",
    )}  # fmt: skip
    assert integrations - parts <= listed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what other libraries say when they are imported
def test_every_public_name_has_a_page(reference, tmp_path):
    written = {path.stem: path.read_text() for path in reference.write(tmp_path / "api")}
    found = reference.modules()
    missing = {name: why for name, why in found.items() if isinstance(why, str)}
    assert "meshnn" in found
    assert "meshnn" not in missing
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
    assert not {"get_params", "set_fit_request", "get_metadata_routing"} & set(found)  # scikit-learn's


def test_pages_written_again_are_left_alone(reference, tmp_path, monkeypatch):
    monkeypatch.setattr(reference, "PUBLIC", {"Nets": ("meshnn.networks", "meshnn.no_such_module")})
    folder = tmp_path / "api"
    first = {path: path.stat().st_mtime_ns for path in reference.write(folder)}
    (folder / "meshnn.old.rst").write_text("a name that is gone")
    assert {path: path.stat().st_mtime_ns for path in reference.write(folder)} == first
    assert not (folder / "meshnn.old.rst").exists()
    assert "``meshnn.no_such_module``" in (folder / "index.rst").read_text()


# -- pages --------------------------------------------------------------------------------------------------------


def test_every_page_is_in_a_list(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    pages = import_module("all_pages")
    lines = [line.strip() for name in pages.LISTS for line in (DOCS / f"{name}.md").read_text().splitlines()]
    assert pages.MARK in lines
    assert {path.stem for path in DOCS.glob("*.md")} <= {*pages.listed(DOCS), *pages.further(DOCS)}
    first = ["quickstart", "how-to", "mathematics", "gallery/index", "api/index", "which-tool", "faq", "reproducing",
             "architecture", "above/contributing", "above/changelog"]  # fmt: skip
    assert {name: lines.count(name) for name in first} == dict.fromkeys(first, 1)


def test_files_beside_the_readme_get_pages(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    pages = import_module("all_pages")
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in pages.LISTS:
        (docs / f"{name}.md").write_text("how-to\nmathematics\n")
    (docs / "new.md").write_text("[how](../SUPPORT.md#how) and [elsewhere](https://a.example/b.md)")
    (tmp_path / "SUPPORT.md").write_text(
        "[safe](SECURITY.md) [here](docs/new.md) ![it](docs/a.png) [ours](examples/a.py)"
    )
    for name in ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "OTHER.md"):
        (tmp_path / name).write_text(f"# {name} [up](#up)")
    pages.write(docs)
    names = {path.stem for path in (docs / "above").glob("*.md")}
    assert names == {"support", "security", "contributing", "changelog"}
    said = (docs / "above" / "support.md").read_text()
    assert said == "[safe](security.md) [here](../new.md) ![it](../a.png) [ours](../../examples/a.py)"
    assert pages.further(docs) == sorted(["new", *(f"above/{name}" for name in names)])
    content = [(docs / "new.md").read_text()]
    pages.mend(type("App", (), {"srcdir": docs}), "new", content)
    assert content == ["[how](above/support.md#how) and [elsewhere](https://a.example/b.md)"]


def test_links_between_pages_hold_in_a_plain_checkout():
    """What is written as a link to a file leads to one, without a site."""
    generated = {"gallery/index.rst", "api/index.rst"}
    for page in (*DOCS.glob("*.md"), *ROOT.glob("*.md")):
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            path = urlsplit(target).path
            if not urlsplit(target).scheme and path and path not in generated:
                assert (page.parent / path).exists(), f"{page.name}: {target}"


def test_the_messages_of_the_questions_are_those_that_are_given(tmp_path, monkeypatch, capsys):
    """Every message that the page quotes is printed by the block below it, or stands in the source."""
    monkeypatch.chdir(tmp_path)
    for library in ("pandas", "onnx"):
        pytest.importorskip(library, reason=f"docs/faq.md IS NOT TESTED without {library}: pip install '.[dev]'")
    source = " ".join(path.read_text() for path in (ROOT / "src/meshnn").rglob("*.py"))
    shared, checked = {}, 0
    for section in re.split(r"\n(?=#{2,3} )", (DOCS / "faq.md").read_text()):
        for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
            exec(compile(block, "faq.md", "exec"), shared)
        said = capsys.readouterr().out or source
        for message in re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", section, flags=re.DOTALL), re.MULTILINE):
            pattern = ".*".join(re.escape(part) for part in message.split("..."))
            assert re.search(pattern, said), f"{message!r} is not what is said: {said[:500]}"
            checked += 1
    assert checked > 20


# -- the gallery --------------------------------------------------------------------------------------------------


def test_the_gallery_has_what_it_promises():
    assert len(EXAMPLES) >= 13
    for path in EXAMPLES:
        text = path.read_text()
        title, line = text.split('"""')[1].strip().splitlines()[:2]
        assert line == "=" * len(title), path.name
        assert "print(" in text, path.name


# -- the site -----------------------------------------------------------------------------------------------------


class Links(HTMLParser):
    """Names, links and sources of a page."""

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
    """Built anew from all pages, in one test: examples that have not changed since the last build are not run again."""
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
    """Nothing is missing, and nothing is loaded from elsewhere; `listed` gets the links to elsewhere."""
    written = [path for path in site.rglob("*.html") if "_static" not in path.parts]  # where the theme has a template
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


def test_links_that_lead_nowhere_are_noticed(tmp_path):
    (tmp_path / "a.html").write_text('<a id="here" href="b.html#there">b</a><img src="c.png"><a href="#here">up</a>')
    (tmp_path / "b.html").write_text('<p id="there">b</p>')
    pages = {path: read_links(path) for path in tmp_path.glob("*.html")}
    page = tmp_path / "a.html"
    assert pages[page].links == ["b.html#there", "#here"]
    assert pages[page].loaded == ["c.png"]
    right = {"b.html": True, "b.html#there": True, "#here": True, "b.html#here": False, "d.html": False, "#x": False}
    assert {target: leads_somewhere(page, target, pages) for target in right} == right


def check_names_and_pictures(site, reference):
    names = read_links(site / "api" / "meshnn.MeshClassifier.html").names
    assert {"meshnn.MeshClassifier", "meshnn.MeshClassifier.fit"} <= names
    for name, page in reference.pages().items():
        assert page in read_links(site / "api" / f"{page}.html").names, name
    for path in EXAMPLES:
        text = (site / "gallery" / f"{path.stem}.html").read_text()
        assert re.search(rf"sphx_glr_{path.stem}_\d+\.png", text), f"{path.name} shows no picture"
        assert "sphx-glr-script-out" in text, f"{path.name} prints nothing"
    assert "<math" in (site / "mathematics.html").read_text()
