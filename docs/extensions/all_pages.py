"""No page is lost: those that no list names go below the how-to pages; files beside the README have pages, too."""

from pathlib import Path
from typing import Any

#: Where this stands in a list of pages, all others follow.
MARK = "further-pages"
LISTS = ("index", "how-to", "mathematics")
#: Files of the folder above that have a page, which includes them.
ABOVE = {"../CONTRIBUTING.md": "contributing.md", "../CHANGELOG.md": "changelog.md"}


def further(folder: Path) -> list[str]:
    """Pages that none of the pages with lists names."""
    listed = {"index"}
    for name in LISTS:
        listed |= {line.strip() for line in (folder / f"{name}.md").read_text().splitlines()}
    return sorted({path.stem for path in folder.glob("*.md")} - listed)


def mend(app: Any, name: str, content: list[str]) -> None:
    """Name further pages where the mark is; lead links to files above to their pages."""
    if name == "how-to":
        content[0] = content[0].replace(f"{MARK}\n", "".join(f"{page}\n" for page in further(Path(app.srcdir))))
    for path, page in ABOVE.items():
        content[0] = content[0].replace(f"]({path}", f"]({page}")


def setup(app: Any) -> dict[str, bool]:
    """For Sphinx: before a page is read."""
    app.connect("source-read", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
