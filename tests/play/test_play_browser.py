"""`meshnn play` in a real browser: actions with mouse and keys, and the text and pictures of the page."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not there: no page is opened")

from meshnn import load  # noqa: E402
from pages import SEPARABLE  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="Debian's chromium is not there: meshnn play is not tested in a browser"
    ),
]

FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--no-first-run", "--disable-default-apps", "--disable-dev-shm-usage"]  # fmt: skip
#: Time limit in seconds per action, on a busy machine.
LONG = 120


class Playing:
    """A running `meshnn play`."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "meshnn", "play", "--no-browser", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:")

    def end(self):
        self.process.kill()
        self.process.wait(LONG)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def playing():
    server = Playing()
    yield server
    server.end()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


class Tab:
    """A page, with all its requests and errors."""

    def __init__(self, browser, address, **options):
        self.context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        self.errors, self.asked = [], []
        self.page = self.new()
        self.page.goto(address)
        self.until("window.meshnnPlay && meshnnPlay.edges() && meshnnPlay.edges().length")

    def new(self):
        page = self.context.new_page()
        page.set_default_timeout(1000 * LONG)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("websocket", lambda opened: self.asked.append(opened.url))
        return page

    def look(self, expression):
        return self.page.evaluate(expression)

    def until(self, expression, page=None):
        """Wait until the expression is true; `wait_for_function` conflicts with the security policy of the page."""
        end, page = time.monotonic() + LONG, page or self.page
        while not (found := page.evaluate(expression)):
            assert time.monotonic() < end, (
                f"time limit for {expression}; the page shows {page.inner_text('#alert-text')!r}"
            )
            time.sleep(0.02)
        return found

    def drag(self, src, dst):
        """Drag from one neuron to another, after the layout has come to rest."""
        self.at_rest()
        (x0, y0), (x1, y1) = (self.look(f"meshnnPlay.where('{name}')") for name in (src, dst))
        mouse = self.page.mouse
        mouse.move(x0, y0)
        mouse.down()
        if src == dst:
            mouse.move(x0 + 60, y0 + 60, steps=3)
        mouse.move(x1, y1, steps=5)

    def at_rest(self):
        places = "JSON.stringify(meshnnPlay.names().map(n => meshnnPlay.where(n)))"
        before = ""
        while (now := self.look(places)) != before:
            before = now
            self.look("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def has(self, src, dst):
        return f"meshnnPlay.edges().some(([s, d]) => s === '{src}' && d === '{dst}')"

    def give(self, name, text):
        content = {"name": name, "mimeType": "text/csv", "buffer": text.encode()}
        self.page.set_input_files("#csv", content)


@pytest.fixture
def tab(browser, playing):
    tab = Tab(browser, playing.address)
    yield tab
    assert tab.errors == []
    for address in tab.asked:  # no requests to other machines
        assert re.match(r"(http|ws)://127\.0\.0\.1:\d+/|data:|blob:http://127\.0\.0\.1:", address), address
    tab.context.close()


def test_edges_and_neurons_come_and_go_while_it_learns(tab):
    tab.drag("h0", "h0")
    tab.until("document.getElementById('tip').textContent.includes('its gradient would be')")
    tab.page.mouse.up()
    tab.until(tab.has("h0", "h0"))
    assert "62 edges" in tab.page.inner_text("#size")
    tab.page.keyboard.press("z")
    tab.until(f"!{tab.has('h0', 'h0')}")
    tab.page.click("#run")
    tab.until("meshnnPlay.done() > 5")
    box = tab.page.locator("#graph").bounding_box()
    tab.at_rest()
    tab.page.mouse.dblclick(box["x"] + box["width"] * 0.3, box["y"] + 6, delay=10)
    tab.until("meshnnPlay.names().includes('h5')")
    tab.until("!document.getElementById('remove').disabled")  # it is selected
    tab.page.select_option("#activation", "sin")
    tab.until("meshnnPlay.state()?.hidden.some(([n, a]) => n === 'h5' && a === 'sin')")
    done = tab.look("meshnnPlay.done()")
    tab.until(f"meshnnPlay.done() > {done}")
    tab.page.click("#remove")
    tab.until("!meshnnPlay.names().includes('h5')")
    tab.page.click("#undo")
    tab.until("meshnnPlay.names().includes('h5')")
    assert tab.page.inner_text("#run") == "Pause"


def test_absent_edges_show_their_gradient_and_can_be_added(tab):
    tab.page.click("#absent")
    tab.until("meshnnPlay.absent().length")
    src, dst, score = tab.look("meshnnPlay.absent().filter(([s, d]) => s !== d)[0]")
    assert score != 0
    tab.at_rest()
    # move along the line between the two until the pointer is on the edge
    (x0, y0), (x1, y1) = (tab.look(f"meshnnPlay.where('{name}')") for name in (src, dst))
    dx, dy = x1 - x0, y1 - y0
    for k in range(-30, 31):
        tab.page.mouse.move((x0 + x1) / 2 - dy * k / 100, (y0 + y1) / 2 + dx * k / 100)
        if f"absent edge {src} → {dst}" in tab.page.inner_text("#tip") and tab.page.is_visible("#tip"):
            break
    assert "its gradient would be" in tab.page.inner_text("#tip")
    tab.page.mouse.down()
    tab.page.mouse.up()
    tab.until(tab.has(src, dst))


def test_it_learns_a_table_and_accuracy_rises(tab):
    tab.give("kinds.csv", SEPARABLE)
    tab.until("meshnnPlay.state()?.data.table")
    assert tab.page.input_value("#target") == "kind"
    tab.page.select_option("#solver", "lm")
    # a link with edges of weight 0: all outputs are equal, so one class is predicted everywhere
    tab.until("meshnnPlay.state()?.solver === 'lm'")
    link = tab.look("""(() => { const state = meshnnPlay.state(), first = state.inputs + 1 + state.hidden.length;
        return meshnnPlay.packed({...state, edges: state.edges.map(([s, d, w]) => [s, d, d < first ? w : 0])}); })()""")
    tab.look(f"location.hash = 's={link}'")
    tab.until("Number(document.getElementById('accuracy').textContent) < 0.6")
    tab.page.click("#run")
    tab.until("Number(document.getElementById('accuracy').textContent) > 0.99")
    tab.until("Number(document.getElementById('test').textContent) > 0.9")


def test_a_reload_and_a_link_go_on_where_it_was(tab, browser, playing):
    tab.page.select_option("#set", "circles")
    tab.until("meshnnPlay.state()?.data.set === 'circles'")
    tab.drag("h1", "h1")
    tab.page.mouse.up()
    tab.until(tab.has("h1", "h1"))
    tab.page.click("#step")
    tab.until("meshnnPlay.done() === 1 && meshnnPlay.state()")
    before, link = tab.look("meshnnPlay.state()"), tab.look("meshnnPlay.address()")
    tab.page.reload()
    other = Tab(browser, playing.address + "#" + link.partition("#")[2])
    for page in (tab, other):
        page.until("window.meshnnPlay && meshnnPlay.state()?.data.set === 'circles'")
        page.until(tab.has("h1", "h1"))
        page.until("meshnnPlay.done() === 1 && meshnnPlay.state()")
        after = page.look("meshnnPlay.state()")
        assert after["hidden"] == before["hidden"]
        assert [edge[:2] for edge in after["edges"]] == [edge[:2] for edge in before["edges"]]
        assert [e[2] for e in after["edges"]] == pytest.approx([e[2] for e in before["edges"]], rel=1e-6, abs=1e-9)
    other.context.close()


def test_ticks_are_stepped_and_played(tab):
    assert tab.page.inner_text("#tick-text") == "tick 3 of 3"
    tab.page.keyboard.press("ArrowLeft")
    assert tab.page.inner_text("#tick-text") == "tick 2 of 3"
    tab.page.click("#tick-step")
    assert tab.page.inner_text("#tick-text") == "tick 3 of 3"
    tab.page.click("#tick-play")
    tab.until("meshnnPlay.tick() > 0.2 && meshnnPlay.tick() < 2.9")


def test_all_goes_with_keys_alone(tab):
    press = tab.page.keyboard.press
    tab.page.focus("#graph")
    for _ in range(4):
        press("n")
    tab.until("document.getElementById('status').textContent.startsWith('h0')")
    press("e")
    press("Enter")
    tab.until(tab.has("h0", "h0"))
    press("Delete")
    tab.until("!meshnnPlay.names().includes('h0')")
    press(" ")
    tab.until("meshnnPlay.done() > 0")
    press("?")
    assert tab.page.is_visible("#help-box")
    press("Escape")
    assert not tab.page.is_visible("#help-box")
    names = tab.look("""[...document.querySelectorAll('button, input, select')].filter(e => !(e.innerText ||
        e.ariaLabel || e.labels && e.labels.length)).map(e => e.id)""")
    assert names == []  # every control has an accessible name


def test_files_come_out(tab, tmp_path):
    for what, ending in (("[data-file=mesh]", ".mesh"), ("[data-file=c]", ".h"), ("#png", ".png"), ("#svg", ".svg")):
        with tab.page.expect_download() as waiting:
            tab.page.click(what)
        assert waiting.value.suggested_filename.endswith(ending)
        waiting.value.save_as(tmp_path / f"net{ending}")
    assert load(tmp_path / "net.mesh").mesh_.topology.n_edges == 61
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "net.svg").read_text().startswith("<svg")
    tab.page.click("#python")
    tab.until("document.getElementById('text').value.includes('MeshClassifier')")


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_when_the_server_is_killed_the_page_says_so_and_keeps_the_net(browser):
    server = Playing()
    tab = Tab(browser, server.address)
    tab.page.click("#run")
    tab.until("meshnnPlay.done() > 3")
    (children,) = (path.read_text().split() for path in Path(f"/proc/{server.process.pid}/task").glob("*/children")
                   if path.parent.name == str(server.process.pid))  # fmt: skip
    server.end()
    end = time.monotonic() + LONG
    while any(alive(child) for child in children):  # the worker processes end with the server
        assert time.monotonic() < end
        time.sleep(0.05)
    tab.page.wait_for_selector("#alert:not([hidden])")
    said = tab.page.inner_text("#alert-text")
    assert "meshnn play has ended" in said
    assert "link" in said
    tab.page.click("#alert-more button")
    tab.until("document.getElementById('text').value.includes('#s=')")
    tab.context.close()


@pytest.mark.parametrize(("width", "height", "scheme"), [(400, 850, "light"), (3840, 2160, "dark")])
def test_everything_fits(browser, playing, width, height, scheme):
    tab = Tab(browser, playing.address, color_scheme=scheme)
    tab.page.set_viewport_size({"width": width, "height": height})
    tab.at_rest()
    assert tab.look("document.documentElement.scrollWidth <= innerWidth")
    cut = tab.look("""[...document.querySelectorAll('button, h1, legend, dt, dd, figcaption, #size')].filter(
        e => e.offsetParent && e.scrollWidth > e.clientWidth + 1).map(e => e.id || e.innerText)""")
    assert cut == []
    small = tab.look("""['graph', 'picture', 'curve'].filter(id => { const r = document.getElementById(id)
        .getBoundingClientRect(); return r.width < 200 || r.height < 100; })""")
    assert small == []
    assert tab.look("getComputedStyle(document.documentElement).colorScheme") == scheme
    tab.page.keyboard.press("d")
    assert tab.look("getComputedStyle(document.documentElement).colorScheme") != scheme
    assert tab.errors == []
    tab.context.close()


@pytest.mark.skipif(
    not (shutil.which("npm") and shutil.which("node")), reason="Node is not there: the page is not built"
)
def test_the_page_in_the_package_is_what_its_sources_make(tmp_path):
    sources = Path(__file__).parents[2] / "play"
    copy, options = tmp_path / "play", {"cwd": tmp_path / "play", "timeout": 300}
    shutil.copytree(sources, copy, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if fetched.returncode:
        pytest.skip(f"npm cannot fetch what the page is built with: {fetched.stderr[-300:]}")
    subprocess.run(["npm", "run", "--silent", "check"], check=True, **options)
    subprocess.run(["node", "build.mjs", str(tmp_path / "built")], check=True, **options)
    packaged = sources.parent / "src" / "meshnn" / "play" / "assets"
    built, there = ({f.name: f.read_bytes() for f in folder.iterdir()} for folder in (tmp_path / "built", packaged))
    assert built == there, "run make play-assets"
