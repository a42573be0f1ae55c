"""Downloads against a local server: resume, retries, caps, digests, redirects, and advice."""

from __future__ import annotations

import hashlib
import http.server
import logging
import re
import threading
import urllib.request

import pytest

from gtjax.core.errors import UserError
from gtjax.datasets import Limits, download_progress
from gtjax.datasets import download as download_module
from gtjax.datasets.download import download, verify

CONTENT = bytes(range(256)) * 4000  # about 1 MB, more than one chunk
LIMITS = Limits(max_download_bytes=2_000_000)


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` at any path; each item of `plan` changes how one request is answered."""

    daemon_threads = True

    def __init__(self):
        self.content, self.etag, self.plan = CONTENT, '"one"', []
        self.honours_ranges, self.requests = True, []
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request, client_address):
        """Say nothing of clients that hang up in the middle: some tests do."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data/file.bin"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server, headers = self.server, self.headers
        server.requests.append(dict(headers))
        step = server.plan.pop(0) if server.plan else None
        if isinstance(step, int):
            self.send_error(step)
            return
        if isinstance(step, str) and step.startswith("redirect "):
            self.send_response(302)
            self.send_header("Location", step.removeprefix("redirect "))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start, asked = 0, re.fullmatch(r"bytes=(\d+)-", headers.get("Range", ""))
        if asked and server.honours_ranges and headers.get("If-Range") == server.etag:
            start = int(asked[1])
        if start > len(server.content):
            self.send_error(416)
            return
        body = server.content[start:]
        self.send_response(206 if start else 200)
        if step != "no length":
            self.send_header("Content-Length", str(len(body)))
        if start:
            first = 0 if step == "wrong range" else start
            self.send_header("Content-Range", f"bytes {first}-{len(server.content) - 1}/*")
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if step == "cut" else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def waits():
    return []


@pytest.fixture
def get(server, tmp_path, waits):
    """Download into tmp_path/cache without really waiting."""

    def get(**options):
        path = tmp_path / "cache" / "file.bin"
        options = {"limits": LIMITS, "sleep": waits.append} | options
        download(options.pop("url", server.url), path, **options)
        return path

    return get


def names(path):
    return sorted(file.name for file in path.parent.iterdir())


def test_a_file_arrives_whole_and_its_digest_is_recorded(get, server):
    path = get()
    assert path.read_bytes() == CONTENT
    assert names(path) == ["file.bin", "file.bin.sha256"]
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert (path.parent / "file.bin.sha256").read_text() == f"{digest}  file.bin\n"
    assert len(server.requests) == 1


def test_a_cut_download_goes_on_where_it_stopped(get, server, waits):
    server.plan = ["cut", "cut"]
    assert get().read_bytes() == CONTENT
    assert [request.get("Range") for request in server.requests] == [
        None,
        f"bytes={len(CONTENT) // 2}-",
        f"bytes={len(CONTENT) * 3 // 4}-",
    ]
    assert server.requests[1]["If-Range"] == '"one"'
    assert waits == [1, 2]


def test_a_file_that_changed_in_between_starts_again(get, server, waits):
    def change(seconds):
        waits.append(seconds)
        server.content, server.etag = CONTENT[::-1], '"two"'

    server.plan = ["cut"]
    assert get(sleep=change).read_bytes() == CONTENT[::-1]
    assert waits == [1]


def test_a_server_without_ranges_starts_again(get, server):
    server.plan, server.honours_ranges = ["cut"], False
    assert get().read_bytes() == CONTENT


def test_without_a_way_to_tell_versions_apart_nothing_is_resumed(get, server):
    server.plan, server.etag = ["cut"], None
    assert get().read_bytes() == CONTENT
    assert "Range" not in server.requests[1]


def test_a_part_that_is_longer_than_the_file_starts_again(get, server):
    def shorten(_):
        server.content = CONTENT[:1000]

    server.plan = ["cut"]
    assert get(sleep=shorten).read_bytes() == CONTENT[:1000]


def test_a_wrong_range_is_not_appended(get, server):
    server.plan = ["cut", "wrong range"]
    assert get().read_bytes() == CONTENT


@pytest.mark.parametrize("status", [429, 500, 503])
def test_passing_errors_are_retried(get, server, waits, status):
    server.plan = [status, status]
    assert get().read_bytes() == CONTENT
    assert waits == [1, 2]


def test_a_lasting_error_says_what_to_do_by_hand(get, server, waits, tmp_path):
    server.plan = [404]
    by_hand = re.escape(f"download {server.url} by hand and place it at {tmp_path}")
    with pytest.raises(UserError, match=f"404.*{by_hand}"):
        get()
    assert waits == []


def test_after_the_last_attempt_it_gives_up(get, server, waits):
    server.plan = [500] * 9
    with pytest.raises(UserError, match="failed 3 times, last: 500"):
        get(attempts=3)
    assert len(server.requests) == 3
    assert waits == [1, 2]


def test_no_server_at_all_is_a_users_error(get, server, waits):
    free_port = "http://127.0.0.1:1/file"
    with pytest.raises(UserError, match="by hand"):
        get(url=free_port, attempts=2)
    assert waits == [1]


@pytest.mark.parametrize("plan", [[], ["no length"]])
def test_too_large_a_file_is_refused_declared_or_not(get, server, plan, tmp_path):
    server.plan = plan
    with pytest.raises(UserError, match="at most 300000 bytes"):
        get(limits=Limits(max_download_bytes=300_000))
    left = [file for file in (tmp_path / "cache").iterdir() if file.stat().st_size]
    assert left == []


def test_a_given_digest_has_to_match(get, server, tmp_path):
    with pytest.raises(UserError, match="should have 000"):
        get(sha256="0" * 64)
    assert list((tmp_path / "cache").iterdir()) == []
    assert get(sha256=hashlib.sha256(CONTENT).hexdigest()).exists()


def test_a_later_download_has_to_match_the_first(get, server):
    path = get()
    path.unlink()
    server.content = CONTENT[1:]
    with pytest.raises(UserError, match=r"If the new content is what you want, delete .*\.sha256"):
        get()
    assert not path.exists()
    server.content = CONTENT
    assert get().read_bytes() == CONTENT


def test_a_cached_file_that_rotted_is_noticed(get):
    path = get()
    verify(path)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(UserError, match="Delete the file"):
        verify(path)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "file:///etc/hostname", "data:,x", "/x"])
def test_only_http_and_https(get, url):
    with pytest.raises(UserError, match="http or https"):
        get(url=url)


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_redirects_stay_within_http(get, server, target):
    server.plan = [f"redirect {target}"]
    with pytest.raises(UserError):
        get(attempts=1)


def test_https_is_not_left_for_http():
    request = urllib.request.Request("https://example.org/a")
    follow = download_module._SafeRedirects().redirect_request
    with pytest.raises(UserError, match="not as safe"):
        follow(request, None, 302, "Found", {}, "http://example.org/b")
    allowed = follow(request, None, 302, "Found", {}, "https://example.org/b")
    assert allowed is not None
    assert allowed.full_url == "https://example.org/b"


def test_redirects_within_http_are_followed(get, server):
    server.plan = ["redirect /elsewhere"]
    assert get().read_bytes() == CONTENT


def test_without_a_terminal_progress_is_logged_now_and_then(monkeypatch, caplog):
    monkeypatch.setattr(download_progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with (
        caplog.at_level(logging.INFO, "gtjax"),
        download_progress.progress("arxiv.zip", 80_000_000, 20_000_000) as show,
    ):
        show(20_000_000)
    assert "arxiv.zip: 40 of 80 MB" in caplog.text


def test_on_a_terminal_there_is_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with download_progress.progress("arxiv.zip", 80_000_000, 0) as show:
        show(80_000_000)
    assert "arxiv.zip" in capsys.readouterr().err
