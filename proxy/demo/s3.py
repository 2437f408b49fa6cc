"""An S3 server: SeaweedFS, all its parts in one process."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from proxy.demo import servers
from proxy.demo.errors import StackError
from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.waiting import wait_until

NAME = "s3"
BUCKET = "diskless"
REGION = "us-east-1"
ACCESS_KEY_ID = "diskless-demo"
SECRET_ACCESS_KEY = "diskless-demo-secret"
"""Key of a server on the loopback interface that lives as long as the demo: not a secret."""
STOP_TIMEOUT_SECONDS = 5.0
"""It takes 15 s to end by itself; what it acknowledged is on disk long before."""
ACTIONS = ("Admin", "Read", "Write", "List", "Tagging")


class SeaweedFS:
    """An S3 endpoint with one bucket."""

    def __init__(self, directory: Path, ports: tuple[int, ...]) -> None:
        """`ports`: eight, the S3 API's first. Files are kept in `directory`/data/s3."""
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = ports
        self._grpc_ports = {"master": master_grpc, "volume": volume_grpc, "filer": filer_grpc, "s3": s3_grpc}
        self.endpoint_url = f"http://{HOST}:{s3}"
        self._data = directory / "data" / NAME
        self._identities = directory / "config" / "s3.json"
        options = {
            "dir": self._data,
            "ip": HOST,
            "ip.bind": HOST,
            "master.port": master,
            "master.port.grpc": master_grpc,
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 1024,
            "volume.port": volume,
            "volume.port.grpc": volume_grpc,
            "volume.max": 100,
            "volume.preStopSeconds": 0,
            "filer.port": filer,
            "filer.port.grpc": filer_grpc,
            # Otherwise a full disk makes all volumes read-only until the next check, which runs once a minute.
            "volume.minFreeSpacePercent": 0,
            "filer.localSocket": self._data / "filer.sock",
            "s3": "true",
            "s3.port": s3,
            "s3.port.grpc": s3_grpc,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.localSocket": self._data / "s3.sock",
            "s3.config": self._identities,
        }
        command = [
            servers.seaweedfs(),
            "-logtostderr=true",
            "server",
            *(f"-{key}={value}" for key, value in options.items()),
        ]
        log = directory / "logs" / f"{NAME}.log"
        self.process = Process(NAME, command, log, stop_timeout_seconds=STOP_TIMEOUT_SECONDS)

    def prepare(self) -> None:
        """Make the data directory, and configure the server's one user."""
        self._data.mkdir(parents=True, exist_ok=True)
        credentials = [{"accessKey": ACCESS_KEY_ID, "secretKey": SECRET_ACCESS_KEY}]
        user = {"name": "demo", "credentials": credentials, "actions": ACTIONS}
        self._identities.write_text(json.dumps({"identities": [user]}))

    def clean_up(self) -> None:
        """Remove the sockets that it leaves behind, at paths that can't be configured."""
        for part, port in self._grpc_ports.items():
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock").unlink(missing_ok=True)

    def client(self) -> Any:
        """Return a botocore client for the server."""
        return botocore.session.Session().create_client(
            "s3",
            region_name=REGION,
            endpoint_url=self.endpoint_url,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
            config=Config(
                connect_timeout=2,
                read_timeout=5,
                retries={"total_max_attempts": 1},
                s3={"addressing_style": "path"},
                proxies={},
            ),
        )

    def wait_ready(self, timeout_seconds: float, cancelled: Event) -> None:
        """Wait until the bucket exists and takes an object. Raises StackError when time is up."""
        client = self.client()
        try:
            wait_until(lambda: self._complaint(client), timeout_seconds, cancelled, self._explain)
        finally:
            client.close()

    def _complaint(self, client: Any) -> str:
        if not self.process.running:
            raise StackError(self._explain(f"it ended (exit code {self.process.exit_code})"))
        try:
            if BUCKET not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
                client.create_bucket(Bucket=BUCKET)
            # A bucket exists before the server has a volume to write to.
            client.put_object(Bucket=BUCKET, Key=".ready", Body=b"ready")
            client.delete_object(Bucket=BUCKET, Key=".ready")
        except (BotoCoreError, ClientError) as error:
            return str(error)
        return ""

    def _explain(self, complaint: str) -> str:
        log = self.process.log
        return f"the S3 server is not ready: {complaint}; see {log}:\n{self.process.log_tail()}"
