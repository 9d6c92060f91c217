"""Fixtures: every engine, every store, and a real S3 server once per session."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from maintenance_assets.engines.registry import engine_names
from maintenance_tests.datasets import Lake
from maintenance_tests.servers import S3Server, s3_server, weed_path

# One xdist group: a single worker runs all of these and starts a single server.
S3 = pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.xdist_group("s3")])


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let `-n` respect groups without having to say so."""
    if getattr(config.option, "dist", None) == "load":
        config.option.dist = "loadgroup"


@pytest.fixture(params=engine_names())
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine."""
    return str(request.param)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server."""
    weed = weed_path()
    if weed is None:
        pytest.skip("no SeaweedFS: install the dev extra")
    with s3_server(weed, tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture
def local(tmp_path: Path) -> Lake:
    """A local directory."""
    return Lake(str(tmp_path / "lake"))


@pytest.fixture(params=["local", "memory", S3])
def lake(request: pytest.FixtureRequest) -> Iterator[Lake]:
    """An empty dataset root on each kind of store."""
    name = f"lake-{uuid.uuid4().hex}"
    if request.param == "local":
        yield request.getfixturevalue("local")
    elif request.param == "memory":
        yield Lake(f"memory://{name}")
        memory = fsspec.filesystem("memory")
        if memory.exists(f"/{name}"):
            memory.rm(f"/{name}", recursive=True)
    else:
        server: S3Server = request.getfixturevalue("s3")
        yield Lake(f"s3://{server.bucket}/{name}", server.storage_options)
