"""Repositories of Hugging Face's hub: a server with its routes, which Hugging Face's own client accepts, too."""

import hashlib
import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from conftest import SECRET, content, pull
from huggingface_hub import snapshot_download

COMMIT = "5f1c" * 10
REPOSITORY = "org/tiny"


def git_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class Hub:
    """The hub, and the server that it keeps large files on."""

    def __init__(self, files):
        self.files = files
        self.large = {name for name in files if name.endswith((".bin", ".safetensors"))}
        self.sent = dict(files)
        self.tokens = {"hub": set(), "large files": set()}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.tokens[self.role].add(self.headers.get("Authorization"))
                getattr(hub, "answer" if self.role == "hub" else "answer_large")(self)

            do_HEAD = do_GET

        def serve(role):
            server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), type(role, (Handler,), {"role": role}))
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            return server

        self.servers = [serve("hub"), serve("large files")]
        self.endpoint, self.storage = (f"http://127.0.0.1:{server.server_address[1]}" for server in self.servers)

    def entry(self, name):
        data = self.files[name]
        entry = {"type": "file", "oid": git_blob(data), "size": len(data), "path": name}
        if name in self.large:
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return entry

    def answer(self, handler):
        url = urlsplit(handler.path)
        path = unquote(url.path)
        api = f"/api/models/{REPOSITORY}"
        if path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}", f"{api}/revision/v1"):
            siblings = [{"rfilename": name} for name in self.files]
            reply(handler, {"id": REPOSITORY, "sha": COMMIT, "siblings": siblings})
        elif path in (f"{api}/tree/{COMMIT}", f"{api}/tree/main"):
            # Two entries a page.
            start = int(parse_qs(url.query).get("cursor", ["0"])[0])
            names = sorted(self.files)
            headers = {}
            if start + 2 < len(names):
                headers["Link"] = f'<{self.endpoint}{url.path}?recursive=true&cursor={start + 2}>; rel="next"'
            reply(handler, [self.entry(name) for name in names[start : start + 2]], headers)
        elif path.startswith(f"/{REPOSITORY}/resolve/"):
            name = path.split("/", 5)[5]
            if name not in self.files:
                reply(handler, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"}, 404)
                return
            entry = self.entry(name)
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{entry["oid"]}"'}
            if name in self.large:
                headers["X-Linked-Etag"] = f'"{entry["lfs"]["oid"]}"'
                headers["X-Linked-Size"] = str(entry["size"])
                headers["Location"] = f"{self.storage}/{name}?signature={SECRET}"
                reply(handler, b"", headers, 302)
                return
            send(handler, self.sent[name], headers)
        else:
            reply(handler, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}, 401)

    def answer_large(self, handler):
        name = unquote(urlsplit(handler.path).path)[1:]
        send(handler, self.sent[name], {"ETag": '"of-the-storage"'})

    def stop(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()


def reply(handler, body, headers=None, status=200):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def send(handler, data, headers):
    status, found = 200, handler.headers.get("Range")
    if found:
        start, _, end = found.removeprefix("bytes=").partition("-")
        stop = int(end) + 1 if end else len(data)
        headers = {**headers, "Content-Range": f"bytes {start}-{min(stop, len(data)) - 1}/{len(data)}"}
        status, data = 206, data[int(start) : stop]
    reply(handler, data, {**headers, "Accept-Ranges": "bytes"}, status)


@pytest.fixture
def hub():
    files = {
        "config.json": b"{}",
        "model.safetensors": bytes(range(256)) * 150_000,
        "pytorch_model.bin": b"pickle",
        "sub/a b#ü.txt": b"text",
        "vocab.txt": b"one\ntwo\n",
    }
    hub = Hub(files)
    yield hub
    hub.stop()


def test_hugging_faces_own_client_gets_the_same_files(hub, tmp_path):
    pull(f"hf://{REPOSITORY}", tmp_path / "ours", HF_ENDPOINT=hub.endpoint, HF_TOKEN=SECRET)
    snapshot_download(
        REPOSITORY, local_dir=tmp_path / "theirs", endpoint=hub.endpoint, token=SECRET, cache_dir=tmp_path / "cache"
    )
    theirs = {name: data for name, data in content(tmp_path / "theirs").items() if not name.startswith(".cache")}
    assert content(tmp_path / "ours") == theirs == hub.files


def test_tokens_go_to_the_hub_only(hub, tmp_path):
    printed = pull(f"hf://{REPOSITORY}@v1", tmp_path, HF_ENDPOINT=hub.endpoint, HF_TOKEN=SECRET)
    assert hub.tokens == {"hub": {f"Bearer {SECRET}"}, "large files": {None}}
    assert "Fetched 5 files" in printed


def test_folders_and_patterns_choose_files(hub, tmp_path):
    pull(f"hf://{REPOSITORY}@main/sub", tmp_path / "a", HF_ENDPOINT=hub.endpoint)
    assert content(tmp_path / "a") == {"a b#ü.txt": b"text"}
    pull(f"hf://{REPOSITORY}:v1", tmp_path / "b", "--exclude", "*.bin", HF_ENDPOINT=hub.endpoint)
    assert "pytorch_model.bin" not in content(tmp_path / "b")
    patterns = "include=*.json&include=*.safetensors&exclude=config*"
    pull(f"hf://{REPOSITORY}?{patterns}", tmp_path / "c", HF_ENDPOINT=hub.endpoint)
    assert list(content(tmp_path / "c")) == ["model.safetensors"]
    printed = pull(f"hf://{REPOSITORY}@main/none", tmp_path, code=1, HF_ENDPOINT=hub.endpoint)
    assert "the bucket has config.json, model.safetensors" in printed


@pytest.mark.parametrize(("name", "kind"), [("model.safetensors", "SHA-256"), ("vocab.txt", "Git hash")])
def test_wrong_bytes_are_refused(hub, tmp_path, name, kind):
    data = hub.files[name]
    hub.sent[name] = data[:-1] + bytes([data[-1] ^ 1])
    printed = pull(f"hf://{REPOSITORY}", tmp_path, code=1, HF_ENDPOINT=hub.endpoint)
    assert f"the content of `{name}` does not have the {kind}" in printed


def test_missing_repositories_need_a_token(hub, tmp_path):
    printed = pull("hf://org/none", tmp_path, code=1, HF_ENDPOINT=hub.endpoint)
    assert "access denied with no token (set `HF_TOKEN`)" in printed
    assert "`HF_HUB_OFFLINE` is set" in pull(f"hf://{REPOSITORY}", tmp_path, code=1, HF_HUB_OFFLINE="1")


def test_files_of_other_servers_are_fetched(hub, tmp_path):
    pull(f"{hub.storage}/pytorch_model.bin", tmp_path / "a")
    assert content(tmp_path / "a") == {"pytorch_model.bin": b"pickle"}
    # Headers are for the named server, and not for the one that it redirects to.
    url = f"{hub.endpoint}/{REPOSITORY}/resolve/main/model.safetensors"
    headers = {"127.0.0.1-headers": json.dumps({"Authorization": f"Bearer {SECRET}"})}
    hub.tokens = {"hub": set(), "large files": set()}
    pull(url, tmp_path / "b", **headers)
    assert content(tmp_path / "b") == {"model.safetensors": hub.files["model.safetensors"]}
    assert hub.tokens["large files"] == {None} and f"Bearer {SECRET}" in hub.tokens["hub"]
    assert "the server answered 404" in pull(f"{hub.endpoint}/{REPOSITORY}/resolve/main/x", tmp_path, code=1)
