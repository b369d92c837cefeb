"""As much of the Language Server Protocol as it takes to open a file and ask about it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tests.schema.node import install


class Server:
    """A running yaml-language-server that uses one schema for every file."""

    def __init__(self, process: subprocess.Popen[bytes], schema: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input: BinaryIO = process.stdin  # type: ignore[assignment]
        self._output: BinaryIO = process.stdout  # type: ignore[assignment]
        self._number = 0
        self._settings = {
            "yaml": {"schemas": {schema.as_uri(): ["/*"]}, "validate": True, "hover": True, "completion": True}
        }
        self.request("initialize", {"processId": None, "rootUri": None, "capabilities": _CAPABILITIES})
        self._notify("initialized", {})
        self._notify("workspace/didChangeConfiguration", {"settings": self._settings})

    def open(self, name: str, text: str) -> list[dict[str, Any]]:
        """Open a file; returns its diagnostics."""
        document = {"uri": f"file:///{name}", "languageId": "yaml", "version": 1, "text": text}
        self._notify("textDocument/didOpen", {"textDocument": document})
        return self._diagnostics(f"file:///{name}")

    def change(self, name: str, version: int, text: str) -> list[dict[str, Any]]:
        """Replace the text of an open file; returns its diagnostics."""
        document = {"uri": f"file:///{name}", "version": version}
        self._notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})
        return self._diagnostics(f"file:///{name}")

    def at(self, method: str, name: str, line: int, column: int) -> Any:
        """Ask for completion or hover at a place, counted from 0."""
        place = {"textDocument": {"uri": f"file:///{name}"}, "position": {"line": line, "character": column}}
        return self.request(f"textDocument/{method}", place)

    def request(self, method: str, params: Any) -> Any:
        """Ask, and wait for the answer."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        for message in self._messages():
            if message.get("id") == self._number and "method" not in message:
                assert "error" not in message, message
                return message.get("result")
        raise AssertionError(f"the server went away before it answered {method}")

    def _diagnostics(self, uri: str) -> list[dict[str, Any]]:
        for message in self._messages():
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == uri:
                found: list[dict[str, Any]] = message["params"]["diagnostics"]
                return found
        raise AssertionError("the server went away before it said anything")

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Everything the server says; what it asks of the client is answered on the way."""
        while message := self._receive():
            if "method" in message and "id" in message:
                wanted = message["params"].get("items", ()) if isinstance(message.get("params"), dict) else ()
                self._send(
                    {"id": message["id"], "result": [self._settings.get(item.get("section")) for item in wanted]}
                )
            yield message

    def _receive(self) -> dict[str, Any] | None:
        length = 0
        while line := self._output.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(self._output.read(length)) if length else None

    def _notify(self, method: str, params: Any) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._input.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._input.flush()


_CAPABILITIES = {
    "textDocument": {
        "completion": {"completionItem": {"documentationFormat": ["markdown"], "snippetSupport": True}},
        "hover": {"contentFormat": ["markdown"]},
        "publishDiagnostics": {},
    },
    "workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}},
}


@contextmanager
def serving(schema: Path) -> Iterator[Server]:
    """A server, ended in the end."""
    program = install() / "yaml-language-server" / "bin" / "yaml-language-server"
    command = ["node", str(program), "--stdio"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield Server(process, schema)
        finally:
            process.kill()
