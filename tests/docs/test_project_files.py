"""The files around the package: citation, versions, links."""

import re
from pathlib import Path

import pytest

import meshnn

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def test_versions_are_the_same_everywhere():
    assert f'version = "{meshnn.__version__}"' in (ROOT / "pyproject.toml").read_text()
    minor = ".".join(meshnn.__version__.split(".")[:2])
    assert f"| {minor} (and what is being worked on) | yes |" in (ROOT / "SECURITY.md").read_text()
    assert f"| 2 | {minor} |" in (ROOT / "docs" / "versions.md").read_text()
    assert (ROOT / "docs" / f"release-{minor}.md").exists()


def anchors(page):
    """What a page's headings are called in links: lower case, words joined by hyphens, other signs left out."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


MADE = {"gallery/index.rst", "api/index.rst"}  # by make docs


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://")) or link in MADE:
            continue
        name, _, part = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not part or part in anchors(target), link
