"""An S3 server with faults that a good server never has. It tests how errors are reported, not how S3 behaves.

It supports put, get with a range, head, list and delete of objects, and no signatures.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from proxy.demo.ports import HOST
from tests.support.s3_headers import ETAG, object_headers


@dataclass
class Faults:
    refusal: tuple[int, str, str] | None = None
    """Status, code and message of every answer."""
    overwrites: bool = False
    """True if the server ignores If-None-Match."""
    behind: timedelta = timedelta()
    """Time by which the server's clock is behind."""
    undeletable: set[str] = field(default_factory=set)
    """Keys whose deletion is denied."""
    objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    """Bytes and the mark of the upload, by path."""


@contextmanager
def s3_double(faults: Faults) -> Iterator[str]:
    """Run a server with these faults; yields its endpoint."""

    class Handler(_Handler):
        server_faults = faults

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_faults: Faults
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_PUT(self) -> None:
        data = self._body()
        path, known = urlsplit(self.path).path, self.server_faults.objects
        if self._refused():
            return
        if path in known and not self.server_faults.overwrites and self.headers["If-None-Match"]:
            self._fail(412, "PreconditionFailed", "it is there")
            return
        known[path] = data, self.headers["x-amz-meta-upload"] or ""
        self._answer(200, b"", ETag=ETAG)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if self._refused():
            return
        if "list-type" in parse_qs(url.query):
            self._answer(200, self._listing(url.path, parse_qs(url.query).get("prefix", [""])[0]))
            return
        if (found := self.server_faults.objects.get(url.path)) is None:
            self._fail(404, "NoSuchKey", "it is not there")
            return
        data, wanted = found[0], None
        if named := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or ""):
            wanted = slice(int(named[1]), int(named[2]) + 1 if named[2] else None)
        part = data if wanted is None else data[wanted]
        self._answer(200 if wanted is None else 206, part, **object_headers(data, wanted))

    def do_HEAD(self) -> None:
        if self.server_faults.refusal is not None:
            self._answer(self.server_faults.refusal[0], b"")
            return
        found = self.server_faults.objects.get(urlsplit(self.path).path)
        self._answer(
            200 if found else 404, found[0] if found else b"", **{"x-amz-meta-upload": found[1] if found else ""}
        )

    def do_POST(self) -> None:
        data = self._body()
        if self._refused():
            return
        bucket = urlsplit(self.path).path.rstrip("/")
        errors = ""
        for key in re.findall("<Key>(.*?)</Key>", data.decode()):
            if key in self.server_faults.undeletable:
                errors += f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
            else:
                self.server_faults.objects.pop(f"{bucket}/{key}", None)
        self._answer(200, f"<DeleteResult>{errors}</DeleteResult>".encode())

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if "aws-chunked" in (self.headers["Content-Encoding"] or ""):
            size, _, rest = data.partition(b"\r\n")
            return rest[: int(size.partition(b";")[0], 16)]
        return data

    def _listing(self, bucket: str, prefix: str) -> bytes:
        modified = (datetime.now(UTC) - self.server_faults.behind).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        start = f"{bucket.rstrip('/')}/"
        keys = [path.removeprefix(start) for path in self.server_faults.objects]
        contents = "".join(
            f"<Contents><Key>{key}</Key><Size>1</Size><LastModified>{modified}</LastModified></Contents>"
            for key in keys
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()

    def _refused(self) -> bool:
        if self.server_faults.refusal is None:
            return False
        self._fail(*self.server_faults.refusal)
        return True

    def _fail(self, status: int, code: str, message: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())

    def _answer(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
