"""Real servers for tests, on loopback ports that were free a moment ago."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
KEY, SECRET = "conformance", "conformance-secret"
BUCKET = "conformance"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running S3 server and how to reach it."""

    endpoint: str
    bucket: str

    @property
    def storage_options(self) -> dict[str, Any]:
        """What s3fs needs to know."""
        return {"key": KEY, "secret": SECRET, "endpoint_url": self.endpoint}


def weed_path() -> str | None:
    """The SeaweedFS binary beside this Python, or on the PATH."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


def free_ports(count: int) -> list[int]:
    """Different ports nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


@contextmanager
def s3_server(weed: str, folder: Path) -> Iterator[S3Server]:
    """SeaweedFS with its S3 gateway, data in `folder`, stopped at the end."""
    data = folder / "data"
    data.mkdir()
    credentials = {"accessKey": KEY, "secretKey": SECRET}
    identity = {"name": "test", "credentials": [credentials], "actions": ["Admin"]}
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    ports = free_ports(8)
    with open(folder / "weed.log", "wb") as log:
        process = subprocess.Popen(
            [weed, *_arguments(data, config, ports)], stdout=log, stderr=log, cwd=folder
        )
        try:
            server = S3Server(f"http://{HOST}:{ports[6]}", BUCKET)
            _wait_until_ready(server, process, folder / "weed.log")
            yield server
        finally:
            _stop(process)


def _arguments(data: Path, config: Path, ports: list[int]) -> list[str]:
    named = zip(
        ("master", "volume", "filer", "s3"), zip(*[iter(ports)] * 2, strict=True), strict=True
    )
    arguments = ["server", f"-dir={data}", f"-ip={HOST}", f"-ip.bind={HOST}", "-filer", "-s3"]
    for name, (http, grpc) in named:
        arguments += [f"-{name}.port={http}", f"-{name}.port.grpc={grpc}"]
    return [
        *arguments,
        f"-s3.config={config}",
        f"-s3.localSocket={data}/s3.sock",
        f"-filer.localSocket={data}/filer.sock",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=64",
        "-volume.preStopSeconds=0",
    ]


def _wait_until_ready(server: S3Server, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Poll until a bucket can be made and written to; at most a minute."""
    import s3fs

    error: Exception | None = None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"weed ended with {process.returncode}: {log.read_text()[-2000:]}")
        try:
            _ask(server.endpoint)
            store = s3fs.S3FileSystem(**server.storage_options, skip_instance_cache=True)
            if not store.exists(server.bucket):
                store.mkdir(server.bucket)
            store.pipe_file(f"{server.bucket}/ready", b"yes")
            return
        except OSError as failed:
            error = failed
            time.sleep(0.25)
    raise RuntimeError(f"the S3 server did not become ready: {error}")


def _ask(endpoint: str) -> None:
    try:
        urllib.request.urlopen(endpoint, timeout=2).close()
    except urllib.error.HTTPError as answered:
        answered.close()  # any answer at all means that it listens


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
