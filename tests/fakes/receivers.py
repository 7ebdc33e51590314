"""Where notices arrive on this machine: a web service for webhooks, and a mail server."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """What the web service says to a POST; `slow` is how many seconds it takes to begin."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: str = "ok"
    slow: float = 0.0


class Hook(ThreadingHTTPServer):
    """A web service that keeps each POST as (path, JSON); answers of `answers` come first, each once."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.host = f"127.0.0.1:{self.server_address[1]}"
        self.url = f"http://{self.host}"
        self.answers: list[Answer] = []
        self.seen: list[tuple[str, Any]] = []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self.server_close()


class _Post(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        self.server.seen.append((self.path, json.loads(self.rfile.read(length))))
        answer = self.server.answers.pop(0) if self.server.answers else Answer()
        time.sleep(answer.slow)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body.encode())

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


class Mail(socketserver.ThreadingTCPServer):
    """A mail server that keeps each mail as (receivers, text); receivers in `refused` get their answer."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.port = int(self.server_address[1])
        self.refused: dict[str, str] = {}
        self.seen: list[tuple[list[str], str]] = []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Mail:
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self.server_close()


class _Session(socketserver.StreamRequestHandler):
    server: Mail

    def handle(self) -> None:
        self._say("220 mail.test")
        receivers: list[str] = []
        while line := self.rfile.readline().decode().strip():
            verb = line[:4].upper()
            if verb == "RCPT":
                address = line.partition("<")[2].partition(">")[0]
                refusal = self.server.refused.get(address)
                if refusal is None:
                    receivers.append(address)
                self._say(refusal or "250 ok")
            elif verb == "DATA":
                self._say("354 go on")
                text = b""
                while not text.endswith(b"\r\n.\r\n"):
                    text += self.rfile.readline()
                self.server.seen.append((receivers, text.decode()))
                receivers = []
                self._say("250 ok")
            elif verb == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 ok")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())
