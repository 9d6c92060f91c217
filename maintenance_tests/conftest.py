"""Fixtures: every engine, every store, and a real S3 server once per session."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from maintenance_assets.engines.registry import engine_names
from maintenance_tests.datasets import Lake
from maintenance_tests.servers import S3Server, s3_server, weed_path
from maintenance_tests.spark_sessions import local_session

# One xdist group: a single worker runs all of these, and starts a single server and one Java.
ONE_WORKER = pytest.mark.xdist_group("servers")
S3 = pytest.param("s3", marks=[pytest.mark.s3, ONE_WORKER])
ENGINES = [
    pytest.param(name, marks=[pytest.mark.spark, ONE_WORKER]) if name == "spark" else name
    for name in engine_names()
]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let `-n` respect groups without having to say so."""
    if getattr(config.option, "dist", None) == "load":
        config.option.dist = "loadgroup"


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine."""
    if request.param == "spark":
        request.getfixturevalue("spark")  # the engine takes the active session
    return str(request.param)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The Spark session that all tests of this process share."""
    with local_session() as session:
        yield session


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
