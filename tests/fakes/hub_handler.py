"""How the fake hub answers one connection."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import fields
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes.hub_files import (
    GRANTED,
    NO_LICENCE,
    REJECTED,
    WAITING,
    Fault,
    Repository,
    Seen,
    Stored,
    Throttle,
)

if TYPE_CHECKING:
    from tests.fakes.hub import Hub

PIECE = 64 * 1024  # bytes sent at once
SEND_BUFFER = 256 * 1024  # bytes: what counts as sent is then nearly what has arrived
MODEL = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?P<rest>/.*)?")
RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
CDN = re.compile(r"/cdn/(?P<repo>[^/]+/[^/]+)/(?P<file>.+)")
HTML = b"<!DOCTYPE html><html><body>Please sign in to this network.</body></html>"
SAID = {
    "": "Access to model {repo} is restricted. You must have access to it and be authenticated to access it.",
    NO_LICENCE: "Access to model {repo} is restricted and you are not in the authorized list. "
    "Visit https://huggingface.co/{repo} to ask for access.",
    WAITING: "Your request to access model {repo} is awaiting a review from the repo authors.",
    REJECTED: "Your request to access model {repo} has been rejected by the repo's authors.",
}


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Hub
    protocol_version = "HTTP/1.1"
    wbufsize = 0
    disable_nagle_algorithm = True

    def setup(self) -> None:
        """Keep little in the kernel, and give the connection a throttle of its own."""
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.own = Throttle(self.server.connection_rate)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the log is kept by the server."""

    def do_GET(self) -> None:
        """Answer a request; HEAD and POST go the same way."""
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        query = parse_qs(parts.query)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        if path == "/_log":
            log = {"sent": self.server.bytes_sent, "log": [seen.to_json() for seen in self.server.seen]}
            return self.reply(200, log)
        if path == "/_control":
            return self.control(json.loads(body))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.seen = Seen(self.command, path, parts.query, headers.get("host", ""), headers)
        self.server.seen.append(self.seen)
        faults = self.server.faults.take(path)
        if self.plain_fault(path, faults):
            return None
        if found := CDN.fullmatch(path):
            return self.cdn(found["repo"], found["file"], query, faults)
        if found := RESOLVE.fullmatch(path):
            return self.resolve(found["repo"], found["revision"], found["file"], faults)
        if path == "/api/models":
            return self.search(query)
        if found := MODEL.fullmatch(path):
            return self.model(found["repo"], found["rest"] or "", query, body)
        if path == "/api/whoami-v2":
            return self.whoami()
        return self.refuse(404, "", "Sorry, we can't find the page you are looking for.")

    do_HEAD = do_POST = do_GET

    def control(self, order: dict[str, Any]) -> None:
        """Do what a control request asks."""
        if "fault" in order:
            known = {field.name for field in fields(Fault)}
            self.server.faults.add(Fault(**{k: v for k, v in order["fault"].items() if k in known}))
        if order.get("clear"):
            self.server.faults.clear()
        if order.get("expire"):
            self.server.expire_links()
        if order.get("forget"):
            self.server.forget()
        self.reply(200, {})

    def plain_fault(self, path: str, faults: dict[str, Fault]) -> bool:
        """Answer with a fault that replaces the whole answer; False when there is none."""
        if fault := faults.get("status"):
            self.reply(fault.code, b"", fault.headers)
        elif fault := faults.get("redirect"):
            self.reply(302, b"", {"Location": fault.location})
        elif "loop" in faults:
            self.reply(302, b"", {"Location": f"{path}?again=1"})
        elif "html" in faults:
            self.reply(200, HTML, {"Content-Type": "text/html; charset=utf-8"})
        else:
            return False
        return True

    def token(self) -> str:
        """The token that came with the request."""
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def repo_or_refuse(self, repo: str) -> Repository | None:
        """Return the repository when its existence may be known to this person."""
        known = self.server.repositories.get(repo)
        if known is None or known.private and known.tokens.get(self.token()) != GRANTED:
            self.refuse(404 if self.token() else 401, "RepoNotFound", "Repository not found")
            return None
        return known

    def resolve(self, repo: str, revision: str, file: str, faults: dict[str, Fault]) -> None:
        """Send to the second host with a signed link, or say why not."""
        known = self.repo_or_refuse(repo)
        if known is None:
            return None
        if revision not in {"main", known.commit}:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if known.gated and known.tokens.get(self.token()) != GRANTED:
            state = known.tokens.get(self.token())
            if state is None:
                said = (
                    f"Access to model {repo} is restricted. You must have access to it and be authenticated."
                )
                return self.refuse(401, "GatedRepo", said)
            return self.refuse(403, "GatedRepo", SAID[state].format(repo=repo))
        stored = known.files.get(file)
        if stored is None:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        if not stored.lfs:
            headers = {"X-Repo-Commit": known.commit, "ETag": f'"{stored.sha256[:40]}"'}
            return self.body(stored, f"{repo}/{file}", headers, faults)
        link = f"{self.server.file_url(repo, file)}?signature={self.server.new_link()}"
        headers = {
            "Location": link,
            "X-Repo-Commit": known.commit,
            "X-Linked-Etag": f'"{stored.sha256}"',
            "X-Linked-Size": str(stored.size),
            "Accept-Ranges": "bytes",
        }
        return self.reply(302, b"", headers)

    def cdn(self, repo: str, file: str, query: dict[str, list[str]], faults: dict[str, Fault]) -> None:
        """Send a file or a part of it; the second host knows no tokens."""
        known = self.server.repositories.get(repo)
        stored = known.files.get(file) if known else None
        if stored is None:
            return self.refuse(404, "", "NoSuchKey")
        signature = query.get("signature", [""])[0]
        if signature and not self.server.use_link(signature):
            return self.refuse(403, "", "Request has expired")
        return self.body(stored, f"{repo}/{file}", {"ETag": stored.etag}, faults)

    def body(self, stored: Stored, name: str, headers: dict[str, str], faults: dict[str, Fault]) -> None:
        """Send bytes of a file as the request's Range asks."""
        if (swap := faults.get("swap")) and self.server.sent_of.get(name, 0) >= swap.after:
            stored = Stored.of(bytes(stored.data[::-1]))
            headers["ETag"] = stored.etag
        first, last, status = 0, stored.size - 1, 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        one_go = "ignore_range" in faults or "no_length" in faults
        if asked and not one_go:
            first, last, status = int(asked[1]), min(int(asked[2] or last), last), 206
            if first > last:
                return self.reply(416, b"", {"Content-Range": f"bytes */{stored.size}"})
        told = stored.size + (faults["size"].after if "size" in faults else 0)
        headers["Accept-Ranges"] = "none" if one_go else "bytes"
        if status == 206:
            headers["Content-Range"] = f"bytes {first}-{last}/{told}"
        elif "size" in faults:
            last = min(last, told - 1)
        promised = last - first + 1 if status == 206 else told
        headers |= {"Content-Length": str(promised), "Content-Type": "application/octet-stream"}
        if "no_length" in faults:
            del headers["Content-Length"]
            self.close_connection = True
        if "headers" in faults:
            headers |= faults["headers"].headers
        self.head(status, headers)
        if self.command != "HEAD":
            self.pour(stored, name, first, last, faults)
            self.close_connection |= promised != last - first + 1
        return None

    def pour(self, stored: Stored, name: str, first: int, last: int, faults: dict[str, Fault]) -> None:
        """Send bytes first..last piece by piece, with whatever goes wrong on the way."""
        slow = Throttle(faults["slow"].after) if "slow" in faults else Throttle(None)
        end = {kind: first + faults[kind].after for kind in ("cut", "stall") if kind in faults}
        at = first
        while at <= last:
            stop = min([at + PIECE, last + 1, *(place for place in end.values() if place > at)])
            piece: bytes | memoryview = stored.data[at:stop]
            if "corrupt" in faults and at <= (bad := faults["corrupt"].after) < stop:
                wrong = bytearray(piece)
                wrong[bad - at] ^= 0xFF
                piece = bytes(wrong)
            for throttle in (slow, self.own, self.server.throttle):
                throttle.wait(len(piece))
            # Counted before it is sent: who has received it may look at once.
            self.server.count(self.seen, name, len(piece))
            self.connection.sendall(piece)
            at = stop
            if at == end.get("cut") and at <= last:
                self.close_connection = True
                return
            if at == end.get("stall"):
                self.server.hold(faults["stall"].seconds)

    def search(self, query: dict[str, list[str]]) -> None:
        """Answer the repositories whose name contains the words."""
        words = query.get("search", [""])[0].lower().split()
        limit = int(query.get("limit", ["100"])[0])
        known = self.server.repositories
        found = [repo for repo in known if all(word in repo.lower() for word in words)]
        self.reply(200, [known[repo].info(repo) for repo in found if not known[repo].private][:limit])

    def model(self, repo: str, rest: str, query: dict[str, list[str]], body: bytes) -> None:
        """Answer what is known of a repository, or the list of its files."""
        known = self.repo_or_refuse(repo)
        if known is None:
            return None
        kind, _, revision = rest.strip("/").partition("/")
        if revision and revision.split("/")[0] not in {"main", known.commit}:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if kind == "tree":
            return self.reply(200, [stored.entry(path) for path, stored in known.files.items()])
        if kind == "paths-info":
            asked = json.loads(body) if body[:1] == b"{" else parse_qs(body.decode())
            found = [known.files[p].entry(p) for p in asked.get("paths", []) if p in known.files]
            return self.reply(200, found)
        return self.reply(200, known.info(repo, blobs=query.get("blobs", [""])[0].lower() in {"true", "1"}))

    def whoami(self) -> None:
        """Say whose token this is; any repository may know it."""
        if any(self.token() in known.tokens for known in self.server.repositories.values()):
            return self.reply(200, {"type": "user", "name": "somebody", "auth": {"type": "access_token"}})
        return self.refuse(401, "", "Invalid username or password.")

    def refuse(self, status: int, code: str, said: str) -> None:
        """Answer an error as the real hub does."""
        self.reply(
            status, {"error": said}, ({"X-Error-Code": code} if code else {}) | {"X-Error-Message": said}
        )

    def reply(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        """Answer with bytes, or with anything else as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        kind = {} if isinstance(content, bytes) else {"Content-Type": "application/json; charset=utf-8"}
        self.head(status, kind | (headers or {}) | {"Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.connection.sendall(body)

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Send the first line and the headers."""
        if hasattr(self, "seen"):
            self.seen.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
