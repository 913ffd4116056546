"""Files outside of the package: citation, versions, links."""

import re
from pathlib import Path

import pytest

import meshnn

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def test_versions_are_the_same_everywhere():
    assert f'version = "{meshnn.__version__}"' in (ROOT / "pyproject.toml").read_text()
    release = meshnn.__version__.removesuffix(".dev0")
    assert f"\nversion: {meshnn.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert release in (ROOT / "CHANGELOG.md").read_text()
    minor = release.rpartition(".")[0]
    assert f"| {minor} (and the development version) | yes |" in (ROOT / "SECURITY.md").read_text()
    assert f"Version {minor}" in (DOCS / "reference" / "versions.md").read_text()


def anchors(page):
    """Return the link targets of a page: headings in lower case with hyphens, and explicit labels."""
    text = page.read_text()
    if included := re.match(r"```\{include\} (\S+)", text):
        return anchors(page.parent / included[1])
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    labels = re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE)
    return {*labels, *(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)}


MADE = {"gallery", "api"}  # folders that the build creates


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://")) or Path(link.partition("#")[0]).parent.name in MADE:
            continue
        name, _, part = link.partition("#")
        home = DOCS if name.startswith("/") else page.parent
        target = (home / name.lstrip("/")).resolve() if name else page
        assert target.exists(), link
        assert not part or part in anchors(target), link
