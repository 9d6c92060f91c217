"""What a person sees: the sensor's reason, a materialization, its figures and their plots."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: install the dev extra")

from playwright.sync_api import Page, expect

from maintenance_tests.browser.server import ROOT, browser_page, dagster_ui, find_chromium

SCREENSHOTS = ROOT / ".screenshots"
FILES = {"2025-11-03": 12, "2025-11-04": 42, "2025-11-05": 18, "2025-11-06": 30, "2025-11-07": 24}
LAST = "2025-11-07"
ROWS_PER_FILE = 50
SLOW_MS = 180_000
SENSOR = "/locations/maintenance_assets/sensors/lake__trades__small_files"
ASSET = "/assets/lake/trades"
OPTIMIZE = "lake__trades__optimize"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        find_chromium() is None,
        reason="no Chromium on the PATH (apt-get install chromium) or in MAINTENANCE_CHROMIUM",
    ),
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    """Small files in five partitions, and a datasets.yaml that names them."""
    # Its path is in the pictures: a short one.
    with TemporaryDirectory(prefix="lake-") as folder:
        yield fill(Path(folder) / "trades", tmp_path / "datasets.yaml")


def fill(root: Path, datasets: Path) -> Path:
    for day, count in FILES.items():
        folder = root / f"date={day}"
        folder.mkdir(parents=True)
        for number in range(count):
            ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
            table = pa.table({"trade_id": ids, "price": [100.5 + i % 7 for i in ids]})
            pq.write_table(table, folder / f"{number:03d}.parquet")
    dataset = {
        "key": "lake/trades",
        "path": str(root),
        "engine": "pyarrow",
        "partition_columns": ["date"],
        "zorder_columns": ["trade_id", "price"],
        "min_gain": 1000,  # so that the sensor has to say why it asks for nothing
        "cooldown_minutes": 0,
        "group": "lake",
        "description": "Trades as the exchange reported them.",
    }
    datasets.write_text(json.dumps({"datasets": [dataset]}))
    return root


@pytest.fixture
def page(lake: Path, tmp_path: Path) -> Iterator[Page]:
    """A browser in front of the UI of that lake."""
    chromium = find_chromium()
    assert chromium is not None
    SCREENSHOTS.mkdir(exist_ok=True)
    datasets = {"MAINTENANCE_DATASETS": str(tmp_path / "datasets.yaml")}
    with (
        dagster_ui(tmp_path / "home", datasets) as address,
        browser_page(chromium, tmp_path / "profile") as page,
    ):
        page.goto(address)
        yield page


def test_a_person_maintains_a_dataset_in_the_ui(page: Page, lake: Path) -> None:
    address = "/".join(page.url.split("/", 3)[:3])

    turn_the_sensor_on(page, address)
    materialize_all_partitions(page, address)
    see_success_of_all_partitions(page, address)

    assert len(list(lake.glob("**/*.parquet"))) == len(FILES)
    see_the_figures(page, address)
    see_plots(page, address)
    see_the_checks(page, address)
    cluster_and_see_what_was_gained(page, address)


def turn_the_sensor_on(page: Page, address: str) -> None:
    """Its first real tick makes the partitions known and gives its reason."""
    page.goto(address + SENSOR)
    switch = page.get_by_role("row").filter(has_text="Running").locator("input[type=checkbox]")
    switch.dispatch_event("click")
    ticks = page.get_by_role("button", name="0 runs requested")
    expect(ticks.first).to_be_visible(timeout=SLOW_MS)
    ticks.first.click()
    reason = f"{len(FILES)} partition(s) looked at: {len(FILES)} x fewer than min_gain 1000"
    expect(page.get_by_text(reason).first).to_be_visible()
    page.wait_for_timeout(500)  # the dialog fades in
    page.screenshot(path=SCREENSHOTS / "sensor.png")


def materialize_all_partitions(page: Page, address: str) -> None:
    page.goto(address + ASSET)
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.get_by_text(f"{len(FILES)} partitions").first).to_be_visible()
    page.screenshot(path=SCREENSHOTS / "materialize.png")
    page.get_by_role("button", name="Launch backfill").click()
    expect(page.get_by_role("button", name="Launch backfill")).to_be_hidden()


def see_success_of_all_partitions(page: Page, address: str) -> None:
    page.goto(f"{address}/runs")
    expect(page.get_by_text(f"{len(FILES)} partitions").first).to_be_visible()
    expect(page.get_by_text("Success", exact=True).first).to_be_visible(timeout=SLOW_MS)
    page.screenshot(path=SCREENSHOTS / "runs.png")


def see_the_figures(page: Page, address: str) -> None:
    """Each partition has its own."""
    page.goto(f"{address}{ASSET}?view=partitions&partition=date%3D{LAST}")
    for name, value in (("before_file_count", FILES[LAST]), ("after_file_count", 1)):
        row = page.get_by_role("row").filter(has_text=name)
        expect(row.first).to_contain_text(str(value))
    page.screenshot(path=SCREENSHOTS / "partition.png")
    page.goto(address + ASSET)
    for name in ("before_file_count", "after_file_count", "rewritten_bytes"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.screenshot(path=SCREENSHOTS / "asset.png")


def see_plots(page: Page, address: str) -> None:
    page.goto(address + ASSET)
    page.get_by_role("button", name="Plots").click()
    title = page.get_by_text("before_file_count", exact=True).first
    title.scroll_into_view_if_needed()
    plot = page.locator("canvas").first
    expect(plot).to_be_visible()
    drawn = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(x => x > 0)"
    assert plot.evaluate(drawn)
    title.evaluate("e => e.scrollIntoView({block: 'center'})")
    page.wait_for_timeout(1000)  # the lines are animated
    page.screenshot(path=SCREENSHOTS / "plots.png")


def see_the_checks(page: Page, address: str) -> None:
    page.goto(f"{address}{ASSET}?view=checks")
    for name in ("small_files", "schema_drift", "rows_preserved", "leftovers"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.screenshot(path=SCREENSHOTS / "checks.png")


def cluster_and_see_what_was_gained(page: Page, address: str) -> None:
    """From the launchpad of the job to the chart in the metadata of the asset."""
    page.goto(f"{address}/locations/maintenance_assets/jobs/{OPTIMIZE}/playground")
    page.get_by_role("button", name="Launch run").click()
    expect(page.get_by_text("Success", exact=True).first).to_be_visible(timeout=SLOW_MS)
    page.goto(f"{address}{ASSET}?view=events")
    chart = page.get_by_text("look-up by").first
    chart.evaluate("e => e.scrollIntoView({block: 'center'})")
    for text in ("trade_id", "price", "overlap depth", "files touched"):
        expect(page.get_by_text(text, exact=True).last).to_be_visible()
    page.screenshot(path=SCREENSHOTS / "clustering.png")
