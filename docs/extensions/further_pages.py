"""Pages that no list names go below the how-to pages: a new one is never lost."""

from pathlib import Path
from typing import Any

#: Where this stands in a list of pages, all others follow.
MARK = "further-pages"


def further(folder: Path) -> list[str]:
    """Pages that none of the pages with lists names."""
    listed: set[str] = {"index"}
    for name in ("index", "how-to", "mathematics"):
        listed |= {line.strip() for line in (folder / f"{name}.md").read_text().splitlines()}
    return sorted({path.stem for path in folder.glob("*.md")} - listed)


def add(app: Any, name: str, content: list[str]) -> None:
    """Name them where the mark is."""
    if name == "how-to":
        content[0] = content[0].replace(f"{MARK}\n", "".join(f"{page}\n" for page in further(Path(app.srcdir))))


def setup(app: Any) -> dict[str, bool]:
    """For Sphinx: before a page is read."""
    app.connect("source-read", add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
