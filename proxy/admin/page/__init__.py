"""The admin page: one page at `/` of the admin port, from the files in `static/`, fed by the JSON under `/api/`.

Plain HTML, CSS and ES modules, as they are written: nothing is built, and nothing comes from elsewhere. See
docs/decisions/0045-an-admin-page-without-a-framework.md.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

STATIC = Path(__file__).with_name("static")
PREFIX = "/page/"
"""Directory of the page's own files."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Policy that the browser applies to the page: nothing inline, nothing from other origins, in no frame."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
}


def page_files() -> dict[str, tuple[str, bytes]]:
    """Content type and content of each file, by the path that it is served at."""
    files = {}
    for path in sorted(STATIC.rglob("*")):
        if path.suffix in _TYPES:
            name = path.relative_to(STATIC).as_posix()
            files["/" if name == "index.html" else PREFIX + name] = _TYPES[path.suffix], path.read_bytes()
    return files


def add_page(app: web.Application) -> None:
    """Serve the page at `/`. All files are read now, and nothing but them is served, whatever path is asked for."""
    for path, (content_type, content) in page_files().items():
        app.router.add_get(path, _File(content_type, content).answer)


class _File:
    """One file, as it is answered."""

    def __init__(self, content_type: str, content: bytes) -> None:
        self._headers = HEADERS | {"Content-Type": content_type}
        self._content = content

    async def answer(self, request: web.Request) -> web.Response:
        return web.Response(body=self._content, headers=self._headers)
