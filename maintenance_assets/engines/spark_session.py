"""The Spark session: the caller's, else the active one, else one of our own, made when needed."""

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from maintenance_assets.engines.java import find_java
from maintenance_assets.errors import EngineUnavailableError

# A classic and a Connect session have no common type.
Session = Any

LOOPBACK = "127.0.0.1"
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.app.name": "maintenance-assets",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}
# Local mode gives up at a task's first failure unless it is told otherwise.
LOCAL_MASTER = "local[*,4]"
_CONNECT_PORT = 15002
_REACH_SECONDS = 5
_READY_SECONDS = 30
_starting = Lock()
_users: "dict[Session, WeakSet[SessionSource]]" = {}
"""Sessions that engines of this process started, and which of these use them."""


class SessionSource:
    """Where an engine gets its session; stops none but the one that it started itself."""

    def __init__(self, spark: Session | None = None, remote: str | None = None) -> None:
        if spark is not None and remote is not None:
            raise ValueError("give spark or remote, not both")
        if remote is not None and not _is_remote(remote):
            raise ValueError(f"remote must be 'sc://host:port' or 'local[...]', got {remote!r}")
        self._given = spark
        self._remote = remote
        self._started: Session | None = None

    def get(self) -> Session:
        """The session, started now if there is none."""
        if callable(self._given):  # made by whoever gave it, when it is needed
            return self._given()
        if self._given is not None:
            return self._given
        # Spark cannot start two sessions of one process at the same time.
        with _starting:
            if self._started is not None and is_alive(self._started):
                return self._started
            active = None if self._remote else active_session()
            if active is not None:
                if active in _users:  # another engine started it: it stays until both are done
                    self._use(active)
                return active
            started = self._start()
            _users[started] = WeakSet()
            self._use(started)
            return started

    def close(self) -> None:
        """Stop the session if engines started it and no other one uses it."""
        with _starting:
            started, self._started = self._started, None
            if started is None:
                return
            # Weak: an engine that was thrown away without closing it holds no session.
            users = _users.get(started, WeakSet())
            users.discard(self)
            if not users:
                _users.pop(started, None)
                if is_alive(started):
                    started.stop()

    def _use(self, session: Session) -> None:
        self._started = session
        _users[session].add(self)

    def _start(self) -> Session:
        remote = self._remote or os.environ.get("SPARK_REMOTE")
        try:
            if remote is None:
                return _start_local()
            return _connect(remote) if remote.startswith("sc://") else _start_local_server(remote)
        except ImportError as error:
            raise EngineUnavailableError(
                f"Spark cannot be used from this Python: {error}. Install pyspark, and for Spark "
                "Connect: pip install 'maintenance-assets[connect]'. Nothing was changed."
            ) from error


def active_session() -> Session | None:
    """The session in use in this process, classic or Connect; None when there is none."""
    # Whoever made a session has imported its module: looking must not load the other kind.
    for module in ("pyspark.sql.connect.session", "pyspark.sql.session"):
        if module not in sys.modules:
            continue
        found = _active_of(sys.modules[module].SparkSession)
        if found is not None:
            return found
    return None


def is_alive(session: Session) -> bool:
    """Whether a session was not stopped yet."""
    if is_connect(session):
        return not session.is_stopped
    return session.sparkContext._jsc is not None


def is_connect(session: Session) -> bool:
    """Whether a session talks to a Spark Connect server."""
    return ".connect." in type(session).__module__


def connect_address(remote: str) -> tuple[str, int]:
    """Host and port of `sc://host:port/;options`."""
    parts = urlsplit(remote)
    if not parts.hostname:
        raise ValueError(f"remote must name a host: 'sc://host:port', got {remote!r}")
    return parts.hostname, parts.port or _CONNECT_PORT


def _is_remote(remote: object) -> bool:
    return isinstance(remote, str) and remote.startswith(("sc://", "local"))


def _active_of(kind: Any) -> Session | None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        found = kind.active()
        return found if is_alive(found) else None
    except PySparkException:
        return None  # this is how Spark says that there is none
    except (Py4JError, OSError) as error:
        raise EngineUnavailableError(
            f"The active Spark session does not answer ({type(error).__name__}): its Java process "
            "has ended. Stop it and start a new one. Nothing was changed."
        ) from error


def _start_local() -> Session:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    settings: dict[str, Any] = {}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has decided already
        settings = {**LOCAL_SETTINGS, "spark.master": LOCAL_MASTER}
    with launch_environment():
        try:
            return SparkSession.builder.config(map=settings).getOrCreate()
        except PySparkException as error:
            raise EngineUnavailableError(
                f"Spark did not start: {error}. Its messages are on the standard error of this "
                "process. Nothing was changed."
            ) from error


@contextmanager
def launch_environment() -> Iterator[None]:
    """While Spark starts: a Java that fits, this Python for its workers, and no outside address."""
    before = dict(os.environ)
    wanted = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK} | before
    if "PYSPARK_GATEWAY_PORT" not in before:
        wanted = find_java(before).apply_to(wanted)
    _change_environment(before, wanted)
    try:
        yield
    finally:
        _change_environment(wanted, before)


def _change_environment(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Only what differs: others may be changing variables of theirs."""
    for name in old.keys() - new.keys():
        os.environ.pop(name, None)
    for name, value in new.items():
        if old.get(name) != value:
            os.environ[name] = value


def _start_local_server(remote: str) -> Session:
    """`local[...]` as a remote: a Connect server inside this process."""
    from pyspark.sql import SparkSession

    with launch_environment():
        return SparkSession.builder.config(map=dict(LOCAL_SETTINGS)).remote(remote).getOrCreate()


def _connect(remote: str) -> Session:
    # Not through the builder of pyspark.sql, which refuses while a classic session exists.
    from pyspark.sql.connect.session import SparkSession

    require_reachable(remote)
    _require_ready(remote)
    return SparkSession.builder.remote(remote).create()


def require_reachable(remote: str) -> None:
    """Fail at once where Spark's own client would try for ten minutes."""
    try:
        socket.create_connection(connect_address(remote), _REACH_SECONDS).close()
    except OSError as error:
        raise _unreachable(remote, str(error)) from error


def _require_ready(remote: str) -> None:
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(remote).toChannel()
    try:
        grpc.channel_ready_future(channel).result(_READY_SECONDS)
    except grpc.FutureTimeoutError as error:
        raise _unreachable(remote, f"no answer in {_READY_SECONDS} s") from error
    finally:
        channel.close()


def _unreachable(remote: str, why: str) -> EngineUnavailableError:
    host, port = connect_address(remote)
    return EngineUnavailableError(
        f"The Spark Connect server at {host}:{port} cannot be reached ({why}). Start it, or "
        "correct SPARK_REMOTE or `remote`. Nothing was changed."
    )
