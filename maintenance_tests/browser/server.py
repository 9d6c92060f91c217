"""A running `make ui` on a free port, and a Chromium to look at it with."""

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from playwright.sync_api import Page, sync_playwright

from maintenance_tests.servers import HOST, free_ports

ROOT = Path(__file__).resolve().parents[2]
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
READY_SECONDS = 120
STOP_SECONDS = 30


def find_chromium() -> str | None:
    """The browser of this machine; playwright's own is not asked for."""
    named = os.environ.get("MAINTENANCE_CHROMIUM")
    return named or next((path for name in CHROMIUMS if (path := shutil.which(name))), None)


@contextmanager
def dagster_ui(home: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The address of a `dagster dev` that is ready; nothing of it is left at the end."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "examples.ui", "--port", str(port), "--home", str(home)]
    log = home.with_suffix(".log")
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            _wait_until_ready(f"http://{HOST}:{port}", process, log)
            yield f"http://{HOST}:{port}"
        finally:
            stop_all(process)


def _wait_until_ready(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"{address}/server_info", timeout=2).close()
            return
        except OSError:
            time.sleep(0.25)
    raise RuntimeError(f"dagster dev did not become ready: {log.read_text()[-2000:]}")


def stop_all(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to end; end what of it remains, by process id."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
    _, alive = psutil.wait_procs(family, timeout=10)
    for child in alive:
        child.kill()
    psutil.wait_procs(alive, timeout=10)


@contextmanager
def browser_page(chromium: str, profile: Path) -> Iterator[Page]:
    """A page of a headless browser with a profile of its own."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=chromium,
            headless=True,
            args=ARGUMENTS,
            viewport={"width": 1400, "height": 1000},
        )
        context.set_default_timeout(60_000)
        try:
            yield context.new_page()
        finally:
            context.close()
