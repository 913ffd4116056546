"""No page is lost: those that no list names go below the how-to pages, and files beside the README get pages, too."""

import re
from pathlib import Path
from typing import Any

#: Where this stands in a list of pages, all others follow.
MARK = "further-pages"
LISTS = ("index", "how-to", "mathematics")
#: Files beside the README that always have a page; others have one if a page links to them.
ALWAYS = ("CONTRIBUTING.md", "CHANGELOG.md")
#: The folder of their pages.
ABOVE = "above"
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


def listed(folder: Path) -> set[str]:
    """Pages that the pages with lists name."""
    found = {"index"}
    for name in LISTS:
        found |= {line.strip() for line in (folder / f"{name}.md").read_text().splitlines()}
    return found


def further(folder: Path) -> list[str]:
    """Pages that none of the pages with lists names, those of files above among them."""
    here = {path.stem for path in folder.glob("*.md")}
    there = {f"{ABOVE}/{Path(name).stem.lower()}" for name in files_above(folder)}
    return sorted((here | there) - listed(folder))


def files_above(folder: Path) -> list[str]:
    """Markdown files in the folder above that pages link to, and those that these link to."""
    found = set(ALWAYS)
    for page in folder.glob("*.md"):
        found |= {target.removeprefix("../") for target in _LINK.findall(page.read_text()) if target.startswith("../")}
    waiting = {name for name in found if _is_above(folder, name)}
    found = set()
    while waiting:
        name = waiting.pop()
        found.add(name)
        linked = set(_LINK.findall((folder.parent / name).read_text()))
        waiting |= {other for other in linked if _is_above(folder, other)} - found
    return sorted(found)


def _is_above(folder: Path, name: str) -> bool:
    return "/" not in name and name.endswith(".md") and (folder.parent / name).is_file()


def page_above(folder: Path, name: str) -> str:
    """The text of a file above, with links as they are from its page."""

    def lead(link: re.Match[str]) -> str:
        target = link[1]
        if _is_above(folder, target):
            return f"]({target.lower()}"
        return f"](../{target.removeprefix('docs/')}" if target.startswith("docs/") else f"](../../{target}"

    return _LINK.sub(lead, (folder.parent / name).read_text())


def write(folder: Path) -> None:
    """Write the pages of files above; what has not changed is left alone."""
    texts = {f"{Path(name).stem.lower()}.md": page_above(folder, name) for name in files_above(folder)}
    (folder / ABOVE).mkdir(exist_ok=True)
    for old in (folder / ABOVE).glob("*.md"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        path = folder / ABOVE / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def mend(app: Any, name: str, content: list[str]) -> None:
    """Name further pages where the mark is; lead links to files above to their pages."""
    folder = Path(app.srcdir)
    if name == "how-to":
        content[0] = content[0].replace(f"{MARK}\n", "".join(f"{page}\n" for page in further(folder)))
    if "/" not in name:
        for above in files_above(folder):
            content[0] = content[0].replace(f"](../{above}", f"]({ABOVE}/{above.lower()}")


def setup(app: Any) -> dict[str, bool]:
    """For Sphinx: before it looks for pages, and before one is read."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir)))
    app.connect("source-read", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
