"""A stand-in for the Hugging Face hub: its URLs and headers, for models that a test lays down."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

LARGE = (".safetensors", ".bin", ".spm")  # kept elsewhere, in the manner of the hub's LFS


@dataclass
class Hub:
    # Name of a repository -> revision -> name of a file -> content.
    repos: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)  # repository -> its refusal
    requests: list[str] = field(default_factory=list)  # "METHOD path" of each
    url: str = ""

    def commit(self, repo: str, revision: str) -> str | None:
        """The hash of a revision's content; equal contents have one commit."""
        for name, files in self.repos[repo].items():
            sha = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
            if revision in (name, sha):
                return sha
        return None

    def files(self, repo: str, commit: str) -> dict[str, bytes]:
        return next(f for r, f in self.repos[repo].items() if self.commit(repo, r) == commit)

    def fetched(self) -> list[str]:
        """Names of the files whose content was asked for, in order."""
        paths = [request.removeprefix("GET ") for request in self.requests if "GET" in request]
        return [path.rpartition("/")[2] for path in paths if not path.startswith("/api/")]

    @contextmanager
    def serve(self) -> Iterator["Hub"]:
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.hub.requests.append(f"{self.command} {path}")
        is_api = path.startswith("/api/models/")
        parts = path.removeprefix("/api/models" if is_api else "/lfs").split("/")[1:]
        repo, (action, *rest) = "/".join(parts[:2]), parts[2:] or ["revision", "main"]
        if repo in self.hub.answers and not (is_api and self.hub.answers[repo][1] == "GatedRepo"):
            return self.refuse(*self.hub.answers[repo])  # the facts about a gated one are public
        if repo not in self.hub.repos:
            return self.refuse(401, "RepoNotFound")  # what the hub says to whom it does not know
        commit = self.hub.commit(repo, "/".join(rest) if is_api else rest[0])
        if commit is None:
            return self.refuse(404, "RevisionNotFound")
        files = self.hub.files(repo, commit)
        if is_api:
            about = {"id": repo, "modelId": repo, "sha": commit, "private": False, "tags": []}
            about["siblings"] = [{"rfilename": name} for name in files]
            return self.reply(200, json.dumps(about).encode(), {"Content-Type": "application/json"})
        name = "/".join(rest[1:])
        if name not in files:
            return self.refuse(404, "EntryNotFound", commit)
        content = files[name]
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        headers = {"ETag": etag, "X-Repo-Commit": commit}
        if action == "resolve" and name.endswith(LARGE):
            elsewhere = f"{self.hub.url}/lfs/{repo}/kept/{commit}/{name}"
            linked = {"X-Linked-Etag": etag, "X-Linked-Size": str(len(content))}
            return self.reply(302, b"", headers | linked | {"Location": elsewhere})
        return self.reply(200, content, headers)

    def refuse(self, status: int, code: str, commit: str = "") -> None:
        message = {"RepoNotFound": "Repository not found"}.get(code, code)
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self.reply(status, b"{}", headers | ({"X-Repo-Commit": commit} if commit else {}))

    def reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
