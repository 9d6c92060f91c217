"""Links and pictures of the documentation lead somewhere, and every page can be reached."""

import re
from pathlib import Path

import pytest

from maintenance_tests.docs.pages import ROOT, pages, prose_of

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def links_of(page: str) -> list[str]:
    """Targets that are not on the web."""
    return [link for link in _LINK.findall(prose_of(page)) if "://" not in link]


def anchors_of(page: Path) -> set[str]:
    """Headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    for link in links_of(page):
        name, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


def test_every_page_is_linked_from_the_readme_and_the_index() -> None:
    wanted = {page for page in pages() if page.startswith("docs/") and page != "docs/README.md"}
    for start, prefix in (("README.md", ""), ("docs/README.md", "docs/")):
        linked = {prefix + link.partition("#")[0] for link in links_of(start)}
        assert wanted <= linked, start


def test_readme_is_short_and_names_the_source_of_its_figures() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) < 250
    assert "benchmarks/RESULTS.md" in text
