"""An AWS that demands what the real services demand: S3 with SSE-KMS, directory buckets with sessions, and STS.

It checks which credentials sign a request, for which service, with which token and which parameters. It does not check
signatures, and it keeps objects in memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

from aiohttp import web

from tests.support.s3_headers import ETAG, object_headers

_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")
Xml = tuple[int, str]


@dataclass
class Aws:
    """The services, with what they demand."""

    region: str = "eu-central-1"
    keys: dict[str, str | None] = field(default_factory=lambda: {"AKID": None})
    """Session token by access key ID of credentials that may use the bucket."""
    kms_key: str = ""
    """KMS key that the bucket's policy demands of uploads."""
    kms_denied: bool = False
    role: str = ""
    """Role that STS gives to the access key ID `BASE`."""
    external_id: str = ""
    role_lifetime: timedelta = timedelta(hours=1)
    express: bool = False
    """True if the bucket is a directory bucket."""
    session_lifetime: timedelta = timedelta(minutes=5)
    objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    """Names of the calls other than those for objects."""
    headers: list[dict[str, str]] = field(default_factory=list)
    """Headers of each upload and fetch, with small names."""
    _sessions: int = 0

    def application(self) -> web.Application:
        """Return the server of all three services."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        return application

    async def _handle(self, request: web.Request) -> web.Response:
        found = _CREDENTIAL.search(request.headers.get("Authorization", ""))
        if found is None:
            return _error(403, "AccessDenied", "the request is not signed")
        key_id, region, service = found.groups()
        if region != self.region:
            return _error(400, "AuthorizationHeaderMalformed", f"expecting '{self.region}'")
        if service == "sts":
            return self._assume_role(key_id, parse_qs(await request.text()))
        if "session" in request.query:
            return self._create_session(key_id, service, request)
        if refusal := self._refusal(key_id, service, request):
            return refusal
        return await self._object(request)

    def _assume_role(self, key_id: str, asked: dict[str, list[str]]) -> web.Response:
        self.calls.append("AssumeRole")
        external_id = asked.get("ExternalId", [""])[0]
        if key_id != "BASE" or asked["RoleArn"] != [self.role] or external_id != self.external_id:
            return _error(403, "AccessDenied", "not authorized to perform: sts:AssumeRole", of="ErrorResponse")
        number = self.calls.count("AssumeRole")
        self.keys = {f"ROLE{number}": f"token-{number}"}
        return _xml(
            200,
            "<AssumeRoleResponse><AssumeRoleResult>"
            f"<Credentials>{_credentials(f'ROLE{number}', f'token-{number}', self.role_lifetime)}</Credentials>"
            f"<AssumedRoleUser><Arn>{self.role}/s</Arn><AssumedRoleId>id</AssumedRoleId></AssumedRoleUser>"
            "</AssumeRoleResult></AssumeRoleResponse>",
        )

    def _create_session(self, key_id: str, service: str, request: web.Request) -> web.Response:
        self.calls.append("CreateSession")
        if not self.express or service != "s3express" or key_id not in self.keys:
            return _error(403, "AccessDenied", "no session for these credentials")
        self._sessions += 1
        made = _credentials(f"SESSION{self._sessions}", f"session-{self._sessions}", self.session_lifetime)
        return _xml(200, f"<CreateSessionResult><Credentials>{made}</Credentials></CreateSessionResult>")

    def _refusal(self, key_id: str, service: str, request: web.Request) -> web.Response | None:
        if self.express:
            token, number = request.headers.get("x-amz-s3session-token", ""), key_id.removeprefix("SESSION")
            if service != "s3express" or not number.isdigit() or token != f"session-{number}":
                return _error(403, "AccessDenied", "a directory bucket takes requests of a session only")
            if not request.query.get("prefix", "/").endswith("/"):
                return _error(400, "InvalidRequest", "a prefix of a directory bucket ends with a slash")
            return None
        if key_id not in self.keys or request.headers.get("x-amz-security-token") != self.keys[key_id]:
            return _error(403, "InvalidAccessKeyId", "unknown key")
        if request.method == "PUT" and self.kms_key:
            encryption = request.headers.get("x-amz-server-side-encryption")
            key = request.headers.get("x-amz-server-side-encryption-aws-kms-key-id")
            if (encryption, key) != ("aws:kms", self.kms_key):
                return _error(403, "AccessDenied", "explicit deny: the bucket takes objects with its KMS key only")
        if request.method in ("PUT", "GET") and self.kms_denied:
            right = "GenerateDataKey" if request.method == "PUT" else "Decrypt"
            return _error(
                403, "AccessDenied", f"User: proxy is not authorized to perform: kms:{right} on resource: key"
            )
        return None

    async def _object(self, request: web.Request) -> web.Response:
        path = request.path
        if request.method == "PUT" or (request.method == "GET" and "list-type" not in request.query):
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if request.method == "PUT":
            if path in self.objects:
                return _error(412, "PreconditionFailed", "it is there")
            self.objects[path] = await request.read(), request.headers["x-amz-meta-upload"]
            return web.Response(headers={"ETag": ETAG})
        if request.method == "POST":
            bucket = path.rstrip("/")
            for key in re.findall("<Key>(.*?)</Key>", await request.text()):
                self.objects.pop(f"{bucket}/{key}", None)
            return _xml(200, "<DeleteResult/>")
        if "list-type" in request.query:
            return self._listing(path.rstrip("/"), request.query.get("prefix", ""))
        if path not in self.objects:
            return _error(404, "NoSuchKey", "it is not there")
        data, mark = self.objects[path]
        if request.method == "HEAD":
            return web.Response(headers={"x-amz-meta-upload": mark, "content-length": str(len(data))})
        wanted = request.http_range if "range" in request.headers else None
        return web.Response(
            status=200 if wanted is None else 206,
            body=data if wanted is None else data[wanted],
            headers=object_headers(data, wanted),
        )

    def _listing(self, bucket: str, prefix: str) -> web.Response:
        contents = "".join(
            f"<Contents><Key>{path.removeprefix(f'{bucket}/')}</Key><Size>{len(data)}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for path, (data, _) in self.objects.items()
            if path.startswith(f"{bucket}/{prefix}")
        )
        return _xml(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")


def _credentials(key_id: str, token: str, lifetime: timedelta) -> str:
    expiration = f"{datetime.now(UTC) + lifetime:%Y-%m-%dT%H:%M:%SZ}"
    return (
        f"<AccessKeyId>{key_id}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"
        f"<SessionToken>{token}</SessionToken><Expiration>{expiration}</Expiration>"
    )


def _xml(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, content_type="application/xml")


def _error(status: int, code: str, message: str, *, of: str = "") -> web.Response:
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return _xml(status, f"<{of}>{error}</{of}>" if of else error)
