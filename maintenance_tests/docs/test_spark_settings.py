"""Settings of Spark that the pages name are settings of the Spark that is installed."""

import re
import zipfile
from functools import cache

import pytest

from maintenance_tests.docs.console import JARS, check_spark_options
from maintenance_tests.docs.pages import pages, text_of

SPARK_JARS = ("core", "kubernetes", "yarn", "connect", "sql-api", "catalyst")
PREFIXES = ("spark.executorEnv.", "spark.yarn.appMasterEnv.")
"""The rest of such a name is up to the user."""


@cache
def known() -> bytes:
    """The classes of Spark: a name that it knows is spelled out in one of them."""
    found = [jar for part in SPARK_JARS for jar in JARS.glob(f"spark-{part}_*.jar")]
    return b"".join(_classes(jar) for jar in sorted(found))


def _classes(jar: object) -> bytes:
    with zipfile.ZipFile(str(jar)) as archive:
        names = [name for name in archive.namelist() if name.endswith(".class")]
        # Settings are declared in these; the rest would be hundreds of megabytes.
        declaring = [name for name in names if re.search(r"[Cc]onfig|package|Conf\b|Conf\$", name)]
        return b"".join(archive.read(name) for name in declaring)


def settings_of(page: str) -> set[str]:
    found = set(re.findall(r"(?<![\w/.@-])spark\.[a-z]\w*(?:\.\w+)+", text_of(page)))
    return {name for name in found if not name.startswith(PREFIXES)}


def is_known(name: str) -> bool:
    """Spelled out, or put together from a prefix and a last word."""
    prefix, _, last = name.rpartition(".")
    return name.encode() in known() or (prefix.encode() in known() and last.encode() in known())


@pytest.mark.parametrize("page", [page for page in pages() if settings_of(page)])
def test_settings_exist(page: str) -> None:
    missing = [name for name in sorted(settings_of(page)) if not is_known(name)]
    assert not missing


def test_a_setting_and_an_option_that_do_not_exist_are_noticed() -> None:
    assert is_known("spark.executor.memoryOverhead")
    assert not is_known("spark.executor.memoryOverheat")
    with pytest.raises(AssertionError, match="--archive-files"):
        check_spark_options(["--archive-files", "x"])
