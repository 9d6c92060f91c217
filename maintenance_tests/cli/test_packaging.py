"""The package as it is shipped: built, installed elsewhere, and used from there."""

import email
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import maintenance_assets
from maintenance_tests.datasets import Lake, one_row_files

PROJECT = Path(maintenance_assets.__file__).parents[1]
SOURCES = ("maintenance_assets", "maintenance_tests", "benchmarks", "examples", "docs")
PAGES = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
    "dagster.yaml",
    "datasets.yaml",
    "requirements.lock",
    "workspace.yaml",
)

pytestmark = pytest.mark.skipif(
    not (PROJECT / "pyproject.toml").exists() or importlib.util.find_spec("hatchling") is None,
    reason="needs the sources and hatchling",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    copy = tmp_path_factory.mktemp("copy") / "project"
    # A copy, so that nothing is written among the sources.
    skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in SOURCES:
        shutil.copytree(PROJECT / name, copy / name, ignore=skipped)
    for name in PAGES:
        shutil.copy(PROJECT / name, copy / name)
    call = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(call, cwd=copy, check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def installer(python: Path, wheel: Path) -> list[str]:
    """The call that installs a wheel, and nothing else, into another environment."""
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        return [*pip, "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("needs pip or uv")
    return [uv, "pip", "install", "--python", str(python), "--no-deps", "--offline", str(wheel)]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and the dependencies of this one."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False)
    programs = place / "bin"
    subprocess.run(
        installer(programs / "python", wheel), check=True, capture_output=True, timeout=120
    )
    return programs


def run(*words: object, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run something far from the sources."""
    elsewhere = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # As a plain path: what this environment has of the package in editable form stays behind.
    dependencies = sysconfig.get_paths()["purelib"]
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**elsewhere, "PYTHONPATH": dependencies},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    version = maintenance_assets.__version__
    assert tops == {"maintenance_assets", f"maintenance_assets-{version}.dist-info"}
    assert "maintenance_assets/py.typed" in names
    modules = {
        path.relative_to(PROJECT).as_posix()
        for path in (PROJECT / "maintenance_assets").rglob("*.py")
    }
    assert modules <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_offers_the_command_and_the_component(wheel: Path) -> None:
    (name,) = (n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("entry_points.txt"))
    text = zipfile.ZipFile(wheel).read(name).decode()
    assert "parquet-maintenance = maintenance_assets.cli.main:main" in text
    assert "maintenance_assets.orchestration.component" in text


def test_the_metadata_says_what_is_needed_and_offered(wheel: Path) -> None:
    (name,) = (n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("/METADATA"))
    found = email.message_from_bytes(zipfile.ZipFile(wheel).read(name))
    assert (found["Name"], found["Version"]) == (
        "maintenance-assets",
        maintenance_assets.__version__,
    )
    assert (found["Requires-Python"], found["License-Expression"]) == (">=3.11", "Apache-2.0")
    assert found["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in found.get_all("Classifier", [])
    extras = {"s3", "gcs", "azure", "postgres", "java", "connect", "dev"}
    assert set(found.get_all("Provides-Extra", [])) == extras
    needed = {one.partition(">")[0] for one in found.get_all("Requires-Dist", []) if ";" not in one}
    assert needed >= {"dagster", "dagster-pyspark", "duckdb", "fsspec", "polars", "pyarrow"}


def test_the_version_is_semantic_and_the_changelog_knows_it() -> None:
    version = maintenance_assets.__version__
    assert re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?", version)
    headings = re.findall(r"^## \[(.+?)\]", (PROJECT / "CHANGELOG.md").read_text(), re.M)
    # Before the first release all of it is unreleased; afterwards the newest is this one.
    released = [heading for heading in headings if heading != "Unreleased"]
    assert released[:1] in ([], [version])
    assert len(headings) == len(set(headings))


def test_the_source_distribution_can_be_tested(built: Path) -> None:
    (found,) = built.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= names
    assert {"maintenance_assets/py.typed", "maintenance_tests/conftest.py"} <= names
    assert {"docs/README.md", "docs/images/asset.png", "CONTRIBUTING.md", "dagster.yaml"} <= names
    # What the two commands of the README need, and the figures that it links to.
    assert {"Makefile", "requirements.lock", "examples/demo.py"} <= names
    assert {"benchmarks/__main__.py", "benchmarks/RESULTS.md"} <= names


def test_the_version_is_said_in_one_voice(wheel: Path, installed: Path, tmp_path: Path) -> None:
    assert f"-{maintenance_assets.__version__}-" in wheel.name
    ran = run(installed / "parquet-maintenance", "--version", folder=tmp_path)
    assert ran.stdout == f"parquet-maintenance {maintenance_assets.__version__}\n"


def test_the_installed_command_maintains_a_dataset(installed: Path, tmp_path: Path) -> None:
    one_row_files(Lake(str(tmp_path / "lake")), 6)
    command = installed / "parquet-maintenance"
    assert "6 small files of 6" in run(command, "status", "lake", folder=tmp_path).stdout
    assert run(command, "plan", "lake", "--save", "plan.json", folder=tmp_path).returncode == 0
    assert run(command, "execute", "plan.json", folder=tmp_path).returncode == 0
    assert "nothing to do" in run(command, "compact", "lake", folder=tmp_path).stdout


def test_the_installed_package_has_every_public_name(installed: Path, tmp_path: Path) -> None:
    code = (
        "import maintenance_assets as package\n"
        "for name in package.__all__: getattr(package, name)\n"
        "print(package.__file__)"
    )
    ran = run(installed / "python", "-c", code, folder=tmp_path)
    assert ran.stderr == ""
    assert ran.stdout.startswith(str(installed.parent))
