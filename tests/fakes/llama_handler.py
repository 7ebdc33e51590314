"""The HTTP side of the fake llama-server: the pages that tell its state, and answers that fail on request."""

from __future__ import annotations

import json
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.fakes.llama_faults import BLACK, BLACK_LINES, sees_black
from tests.fakes.llama_flags import Flags, Options, read_flags
from tests.fakes.llama_log import BUILD_INFO, Log, answered

BUSY = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
PARAMS = {"temperature": 0.800000011920929, "top_k": 40, "max_tokens": -1, "seed": 4294967295}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, options: Options, log: Log, loaded: threading.Event) -> None:
        self.options = options
        self.log = log
        self.loaded = loaded
        self.requests: list[dict[str, Any]] = []
        self.writing: dict[int, int] = {}  # tokens so far of the streams that go on, by thread
        self.lock = threading.Lock()
        super().__init__((options.host, options.port), Handler)

    @property
    def written(self) -> list[int]:
        return list(self.writing.values())

    def ready(self, flags: Flags) -> bool:
        return self.loaded.is_set() and not flags.never_ready


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def log_message(self, format: str, *args: Any) -> None:
        """The access log is written by `_handle`."""

    def _handle(self) -> None:
        flags, path = read_flags(), self.path.split("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == "/fake/requests":
            self._json(200, self.server.requests)
            return
        entry: dict[str, Any] = {
            "method": self.command,
            "path": path,
            "headers": dict(self.headers),
            "end": "",
        }
        entry["body"] = body.decode(errors="replace")
        with self.server.lock:
            self.server.requests.append(entry)
            count = len(self.server.requests)
        try:
            entry["status"] = self._route(flags, path, body)
            entry["end"] = "done"
        except OSError:
            self.close_connection = True
            entry["end"] = "cancelled"
            self.server.log("srv          stop: cancel task, id_task = 0")
        self.server.writing.pop(threading.get_ident(), None)
        if path.endswith("/chat/completions") and "status" in entry:
            answered(self.server.log, flags)
        line = f"{self.command} {path} {self.client_address[0]} {entry.get('status', 0)}"
        self.server.log(f"srv  log_server_r: done request {count}: {line}")

    def _route(self, flags: Flags, path: str, body: bytes) -> int:
        """Answers a request and returns the status; OSError when the client has gone."""
        options = self.server.options
        if path in flags.hang.split(","):
            self._stay_until_closed(float("inf"))
        if path in flags.wrong_json.split(","):
            return self._send(200, b'{"error": [tru', "application/json; charset=utf-8")
        if not self.server.ready(flags):
            return self._json(503, {"error": BUSY})
        if path in ("/health", "/v1/health"):
            return self._json(200, {"status": "ok"})
        sent = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or self.headers.get(
            "X-Api-Key"
        )
        if options.key and sent != options.key:
            return self._error(401, "Invalid API Key", "authentication_error")
        match path:
            case "/props":
                return self._json(200, self._props(flags))
            case "/slots" if options.slots:
                return self._json(200, [self._slot(flags, number) for number in range(options.parallel)])
            case "/metrics" if options.metrics:
                return self._send(200, self._metrics(flags).encode(), "text/plain; version=0.0.4")
            case "/slots" | "/metrics":
                return self._error(
                    501, f"This server does not support {path[1:]} endpoint.", "not_supported_error"
                )
            case "/v1/models" | "/models":
                model = {
                    "id": options.alias,
                    "object": "model",
                    "created": 0,
                    "owned_by": "llamacpp",
                    "meta": None,
                }
                return self._json(200, {"object": "list", "data": [model]})
            case "/v1/chat/completions" | "/chat/completions":
                return self._chat(flags, body)
        return self._error(404, "File Not Found", "not_found_error")

    def _props(self, flags: Flags) -> dict[str, Any]:
        options = self.server.options
        return {
            "default_generation_settings": {"params": PARAMS, "n_ctx": options.slot_ctx},
            "total_slots": options.parallel,
            "model_alias": options.alias,
            "model_path": options.model,
            "modalities": {"vision": bool(options.mmproj), "audio": False},
            "build_info": BUILD_INFO["fork" if self.server.log.fork else "upstream"],
            "is_sleeping": flags.sleeping,
        }

    def _slot(self, flags: Flags, number: int) -> dict[str, Any]:
        options = self.server.options
        speculative = flags.draft > 0 or (options.mtp and not flags.mtp_error)
        slot = {"id": number, "n_ctx": options.slot_ctx, "speculative": speculative, "is_processing": False}
        written = self.server.written
        if number < len(written):  # each request that goes on has a slot of its own
            next_token = {"has_next_token": True, "n_remain": -1, "n_decoded": written[number]}
            slot |= {"is_processing": True, "id_task": number, "n_prompt_tokens": 21 + written[number]}
            slot |= {"n_prompt_tokens_processed": 21, "n_prompt_tokens_cache": 0, "next_token": [next_token]}
        return slot

    def _metrics(self, flags: Flags) -> str:
        answers = [
            entry
            for entry in self.server.requests
            if entry["path"].endswith("/chat/completions") and entry["end"] == "done"
        ]
        values = {
            "prompt_tokens_total": len(answers) * 21,
            "tokens_predicted_total": len(answers) * len(flags.reply.split()),
            "requests_processing": min(len(self.server.written), self.server.options.parallel),
            "requests_deferred": max(0, len(self.server.written) - self.server.options.parallel),
        }
        if not self.server.log.fork:
            values["spec_decode_num_draft_tokens_total"] = len(answers) * flags.draft
            values["spec_decode_num_accepted_tokens_total"] = len(answers) * flags.accepted
        return "".join(f"# TYPE llamacpp:{name} counter\nllamacpp:{name} {n}\n" for name, n in values.items())

    def _chat(self, flags: Flags, body: bytes) -> int:
        if flags.error_before:
            kind = {503: "unavailable_error", 400: "invalid_request_error"}.get(
                flags.error_before, "server_error"
            )
            return self._error(flags.error_before, flags.error_text, kind)
        try:
            request = json.loads(body)
        except ValueError as error:
            return self._error(400, f"parse error: {error}", "invalid_request_error")
        if b'"image_url"' in body and not self.server.options.mmproj:
            hint = "hint: if this is unexpected, you may need to provide the mmproj"
            return self._error(500, f"image input is not supported - {hint}", "server_error")
        if sees_black(flags, self.server.options, body):
            self.server.log(*BLACK_LINES, level="W")
            flags = replace(flags, reply=BLACK)
        self._stay_until_closed(flags.prompt_delay)
        begin = time.monotonic()
        words = flags.reply.split(" ")
        words = [word if n == 0 else f" {word}" for n, word in enumerate(words)][
            : request.get("max_tokens") or None
        ]
        finish = {"role": "assistant", "content": "".join(words)}
        if not request.get("stream"):
            self._stay_until_closed(flags.token_delay * len(words))
            choice = {"index": 0, "message": finish, "finish_reason": "stop"}
            end = {"usage": self._usage(words), "timings": self._timings(flags, len(words), begin)}
            return self._json(200, self._event("chat.completion", [choice]) | end)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.server.writing[threading.get_ident()] = 0
        self.server.log("slot launch_slot_: id  0 | task 0 | processing task, is_child = 0")
        for event in self._events(flags, request, words, begin):
            data = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
            self._write(b"%x\r\n%s\r\n" % (len(data), data))
        self._write(b"0\r\n\r\n")
        # As llama-server does: the header promises keep-alive, and the connection is closed all the same.
        self.close_connection = True
        return 200

    def _events(
        self, flags: Flags, request: dict[str, Any], words: list[str], begin: float
    ) -> Iterator[dict[str, Any] | str]:
        def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            return self._event(
                "chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": reason}]
            )

        yield chunk({"role": "assistant", "content": None})
        for word in flags.reasoning.split():
            self._stay_until_closed(flags.token_delay)
            yield chunk({"reasoning_content": f"{word} "})
        for n, word in enumerate(words):
            if n == flags.error_after:
                yield {"error": {"code": 500, "message": flags.error_text, "type": "server_error"}}
                return
            if n == flags.drop_after:
                raise ConnectionAbortedError
            self._stay_until_closed(flags.token_delay)
            self.server.writing[threading.get_ident()] = n + 1
            more = {"timings": self._timings(flags, n + 1, begin)} if request.get("timings_per_token") else {}
            yield chunk({"content": word}) | more
        end: dict[str, Any] = {"timings": self._timings(flags, len(words), begin)}
        if (request.get("stream_options") or {}).get("include_usage"):
            yield chunk({}, "stop")
            yield self._event("chat.completion.chunk", []) | {"usage": self._usage(words)} | end
        else:
            yield chunk({}, "stop") | end
        yield "[DONE]"

    def _event(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        name = self.server.options.alias
        return {
            "id": "chatcmpl-fake",
            "object": kind,
            "created": int(time.time()),
            "model": name,
            "choices": choices,
        }

    def _usage(self, words: list[str]) -> dict[str, Any]:
        count = len(words)
        return {"prompt_tokens": 21, "completion_tokens": count, "total_tokens": 21 + count}

    def _timings(self, flags: Flags, count: int, begin: float) -> dict[str, Any]:
        spent = max((time.monotonic() - begin) * 1000, 0.001)
        drafts = {"draft_n": flags.draft, "draft_n_accepted": flags.accepted} if flags.draft else {}
        prompt = {"cache_n": 0, "prompt_n": 21, "prompt_ms": 2.0, "prompt_per_second": 10500.0}
        return (
            prompt
            | {"predicted_n": count, "predicted_ms": spent, "predicted_per_second": count / spent * 1000}
            | drafts
        )

    def _stay_until_closed(self, seconds: float) -> None:
        """Waits; ConnectionAbortedError as soon as the client closes its side."""
        timeout = None if seconds == float("inf") else seconds
        if seconds and select.select([self.connection], [], [], timeout)[0]:
            raise ConnectionAbortedError

    def _write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def _error(self, status: int, message: str, kind: str) -> int:
        return self._json(status, {"error": {"code": status, "message": message, "type": kind}})

    def _json(self, status: int, value: object) -> int:
        return self._send(status, json.dumps(value).encode(), "application/json; charset=utf-8")

    def _send(self, status: int, data: bytes, kind: str) -> int:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self._write(data)
        return status
