"""`meshnn play` as a server: access, processes of pages, and the command."""

import contextlib
import http.client
import importlib.util
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="starlette is not there: meshnn play is not tested")
pytest.importorskip("websockets", reason="websockets is not there: meshnn play is not tested")

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from commands import meshnn
from meshnn.play import server
from meshnn.play.limits import LIMITS
from pages import read


def kind_of(message):
    return read(message)["kind"]


class Served:
    """A server in a thread of this process."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.port, self.token = self.listener.getsockname()[1], "T" * 32
        self.server = server.new_server(self.listener, self.token, None, "")
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})
        self.thread.start()

    def stop(self):
        self.server.should_exit = True
        self.thread.join(30)
        self.listener.close()

    def get(self, path, **headers):
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        asked.putrequest("GET", path, skip_host=True)
        for name, value in ({"Host": f"127.0.0.1:{self.port}"} | headers).items():
            asked.putheader(name, value)
        asked.endheaders()
        answer = asked.getresponse()
        found = answer.status, answer.read().decode(), dict(answer.getheaders())
        asked.close()
        return found

    def socket(self, token=None, origin="own", **more):
        origin = f"http://127.0.0.1:{self.port}" if origin == "own" else origin
        address = f"ws://127.0.0.1:{self.port}/{token or self.token}/socket"
        return connect(address, origin=origin, open_timeout=60, max_size=None, **more)


@pytest.fixture(scope="module")
def served():
    server = Served()
    yield server
    server.stop()


def test_the_page_is_whole_and_asks_nobody(served):
    for name in ("", "app.js", "style.css"):
        status, text, headers = served.get(f"/{served.token}/{name}")
        assert status == 200
        assert "default-src 'none'" in headers["content-security-policy"]
        elsewhere = text.replace("http://www.w3.org/2000/svg", "").replace("'http://www.w3.org", "")
        assert not [word for word in ("http://", "https://", "eval(") if word in elsewhere]


def test_only_those_with_the_token_and_of_this_machine_are_let_in(served):
    page = f"/{served.token}/"
    own = f"127.0.0.1:{served.port}"
    for path, headers in [
        ("/", {}), ("/x/", {}), (f"/{served.token[:-1]}/", {}), ("/app.js", {}), (f"/x{page}app.js", {}),
        (page, {"Host": "evil.example"}), (page, {"Host": f"evil.example:{served.port}"}),
        (page, {"Host": "127.0.0.1"}),
        (page, {"Origin": "http://evil.example"}), (page, {"Origin": "null"}), (page, {"Origin": f"https://{own}"}),
    ]:  # fmt: skip
        status, text, _ = served.get(path, **headers)
        assert status == 403, (path, headers)
        assert "Traceback" not in text
    assert served.get(page, Host=f"localhost:{served.port}")[0] == 200
    assert served.get(page, Origin=f"http://{own}")[0] == 200
    assert served.get(f"{page}../../etc/passwd")[0] == 404
    for token, origin in [("x", "own"), (None, "http://evil.example"), (None, None), (None, f"https://{own}")]:
        with pytest.raises(InvalidStatus) as refused:
            served.socket(token, origin)
        assert refused.value.response.status_code == 403
    assert learning() == []  # rejected clients start no process


def learning():
    """Return the training processes of pages; other tests may have started more."""
    return [process for process in multiprocessing.active_children() if process.name == "meshnn play"]


def gone(processes, within=60):
    """Return whether all processes end in time."""
    end = time.monotonic() + within
    while any(process.is_alive() for process in processes) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(process.is_alive() for process in processes)


def test_what_learns_ends_with_its_page(served):
    with served.socket() as first:
        assert json.loads(first.recv(timeout=120))["kind"] == "hello"
        (process,) = learning()
        first.send(b"\x00\x01")
        first.send("{")
        first.send('{"do": "run", "on": true}')
        kinds = set()
        while not {"error", "frame", "regions"} <= kinds:
            kinds.add(kind := kind_of(first.recv(timeout=60)))
            if kind == "frame":
                first.send('{"do": "ack"}')
    assert gone([process])
    assert process.exitcode is not None


@pytest.mark.slow
def test_a_page_that_stops_reading_is_closed(served, monkeypatch):
    """Its commands are rejected, so its queue of answers stays short, and its process ends."""
    monkeypatch.setattr(server, "LIMITS", replace(LIMITS, unread=1.0))
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # otherwise megabytes are buffered
    narrow.connect(("127.0.0.1", served.port))
    with served.socket(sock=narrow, max_queue=1, close_timeout=1) as page:
        page.recv(timeout=120)
        (process,) = learning()

        def ask():
            with contextlib.suppress(ConnectionClosed):
                text = "a,b,kind\n" + "1,2,left\n3,4,right\n" * 9000
                page.send(json.dumps({"do": "csv", "name": "big.csv", "text": text}))
                while True:
                    page.send('{"do": "hello"}')  # answered with all 18,000 points

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        try:
            assert gone([process], within=30)  # the keepalive of the server would take 40 s
        finally:
            narrow.shutdown(socket.SHUT_RDWR)  # the client may still be waiting to send a command
    asking.join(60)
    assert not asking.is_alive()


@pytest.mark.slow
def test_pages_are_not_too_many_and_told_when_their_process_dies(served, monkeypatch):
    monkeypatch.setattr(server, "LIMITS", replace(LIMITS, pages=2))
    with served.socket() as first, served.socket() as second:
        for page in (first, second):
            assert kind_of(page.recv(timeout=120)) == "hello"
        processes = learning()
        assert len(processes) == 2
        with served.socket() as third, pytest.raises(ConnectionClosed, match="2 pages"):
            third.recv(timeout=60)
        for process in processes:
            process.kill()
        with pytest.raises(ConnectionClosed, match="4002"):
            list(first)
    assert gone(processes)


# -- the command


@pytest.mark.parametrize(("arguments", "words"), [
    (["--host", "0.0.0.0"], "0.0.0.0"),
    (["--port", "taken"], "--port"),
    (["nothing.csv"], "nothing.csv"),
    (["--target", "x"], "--target"),
])  # fmt: skip
def test_what_the_command_refuses(served, arguments, words):
    done = meshnn("play", *(str(served.port) if argument == "taken" else argument for argument in arguments))
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_the_extra_it_says_which(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    done = meshnn("play")
    assert done.returncode == 2
    assert "pip install 'meshnn[play]'" in done.stderr


@pytest.mark.slow
def test_ctrl_c_ends_it_in_a_sentence_and_all_that_it_started():
    command = [sys.executable, "-m", "meshnn", "play", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        port = int(address.split(":")[2].split("/")[0])
        path = address.replace("http:", "ws:") + "socket"
        with connect(path, origin=f"http://127.0.0.1:{port}", open_timeout=60, max_size=None) as page:
            page.recv(timeout=120)
            (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[-1:]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "meshnn play has ended" in err
        assert "Traceback" not in out + err
        assert not os.path.exists(f"/proc/{child}") or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]
