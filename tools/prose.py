"""Check the prose of the project: `python tools/prose.py [FILE ...]`, part of `make lint`.

It reads Markdown pages, docstrings, comments, messages and help texts, and reports phrases that make technical English
hard to read, each with a better one, pages that are too long and pages that are hard to read (Flesch reading ease).
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

_UNIT = (
    r"(?:\d[\d.,]*|[µumn]?s|seconds?|minutes?|hours?|bytes?|[kMG]i?B|times|one|two|three|four|numbers?|values?|rows?"
)
_UNIT += r"|samples?|lines?|entries|steps?|multiply-adds|instructions|neurons?|edges?|features?|labels?|weights?"
_UNIT += r"|inputs?|epochs?)"
_EACH = (
    r"(?:row|fit|step|sample|edge|gradient|neuron|second|minute|tick|class|column|group|feature|chart|start|value|line"
)
_EACH += r"|key|epoch|input|output|batch|block|thread|worker|call|kind|layer|weight|iteration|day|file|trial|set|shard)"
_SUBJECT = (
    r"(?:net|network|mesh|model|stream|encoder|estimator|plan|graph|solver|filter|loss|library|file|page|table)s?"
)
_START = r"(?:^[ -]*|[.;:!?|] )"

#: Pattern (a space stands for any white space), and what to write instead.
RULES = {
    rf"\b{_UNIT} an? {_EACH}\b": '"per row", not "a row"',
    r"\bso (?:many|few)\b": "the number, or a noun",
    r"\b(?:whoever|whatever|nobody|somebody|someone else|anybody)\b": "the noun that is meant",
    rf"{_START}What\b(?![^.:;]*\?)": "a sentence with a noun as its subject",
    rf"{_START}(?:Of|From|To|By|With|For|At) what\b": "a sentence with a noun as its subject",
    rf"{_START}Of (?:an?|the|each|every|all|several|such|one|these|those|its|this|that)\b": "subject first",
    rf"{_START}(?:That|Those|These|All|Nothing|It) (?:which |that )?(?:is|are|does|do|has|have)\.": "a full sentence",
    r"\bby heart\b": "overfit",
    r"\bbeliev(?:e|es|ed|able)\b": '"calibrated", "reliable", "assumed"',
    r"\b(?:tells?|told|says?|said|saying)\b": '"reports", "states", "shows"',
    rf"\b{_SUBJECT} (?:knows?|thinks?|wants?|wishes|likes?|speaks?|believes?|hears?|sees)\b": "no personification",
    r"\bwants\b": '"needs", "requires"',
    r"\b(?:dear|dearer|dearest|dearly)\b": '"expensive"',
    r"\b(?:mend|mends|mended|mending)\b": '"fix", "correct"',
    r"\bmanners?\b": '"conventions", "way"',
    r"\b(?:by turns|in turns)\b": '"alternating"',
    r"\bheld (?:back|for)\b": '"held out", "assumed"',
    r"\btake stock\b": '"synchronise", "record"',
    r"\b(?:crew|spool|lots of)\b": "the established term",
    r"\b(?:at|from|to) the desk\b": '"on the host"',
    r"\b(?:anew|hitherto|thereof|therein|whereof|wherein|thereby)\b": '"again", "new", or nothing',
    r"\b(?:one|two|three) each\b": '"one per ..."',
    r"\bas (?:it comes|they come)\b": '"with default settings", "in order of arrival"',
    r"\b(?:to|can|cannot|could|may) be had\b": '"available"',
    r"\bcom(?:e|es|ing) to (?:its|an|their) end\b": '"ends", "finishes"',
    r"\bwill do(?: as well| too)?\b(?! \w)": '"works", "is accepted"',
    r"\bas many as (?:pay|are worth)\b": '"as many as speed up the computation"',
    r"\bnow and then\b": '"periodically", with the interval',
    r"\bgoes? by\b": '"uses", "follows"',
    r"\bof (?:one's|your|its|their) own accord\b": '"automatically"',
    r"\bat a coin's\b|\bcoin's error\b": '"at chance level"',
    r"\b(?:amounts? and classes|classes and amounts?)\b": '"a regression target", "classes"',
    r"\b(?:is|are|be) learned from\b": '"is trained on"',
    r"\bhas its say\b|\bhave their say\b|\bhave a say\b": '"reports", "contributes"',
    r"\b(?:next to nothing|none too|no more than needed)\b": "the amount",
    r"\bthe rest of it\b|\band what not\b|\bsuch as it is\b": "the noun that is meant",
    r"\bin the end\b": '"finally", or nothing',
}
#: Rules about the start of a sentence match its capital letter, all others any case.
_COMPILED = [
    (
        re.compile(re.sub(r" (?!-\])", r"(?!\\s*\\n\\s*\\n)\\s+", key), re.M | (0 if key.startswith(_START) else re.I)),
        fix,
    )
    for key, fix in RULES.items()
]

#: Signs of a comment at the start of a line.
_MARK = re.compile(r"^[ \t]*(?:#:?|//+|/?\*+|>)(?= )", re.M)

#: Most lines of a page, by the first pattern that matches its path.
LINES = {"README.md": 120, "CONTRIBUTING.md": 120, "docs/architecture.md": 120, "docs/**/*.md": 250}
#: Least Flesch reading ease.
EASE = {"README.md": 50, "docs/tutorial.md": 50, "docs/how-to/*.md": 50}
_BLOCK = r"/\*(?:[^*]|\*(?!/))*\*/"
_STRING = r"\"[^\"\n]* [^\"\n]*\""
#: What people read in a file, by its name or ending: a pattern, "parsed" where there is more to it.
_PROSE = dict.fromkeys((".md", ".rst", ".py", ".pyi"), "parsed")
_PROSE |= dict.fromkeys(
    (".c", ".h", ".hpp", ".cpp", ".ts", ".css", ".js", ".mjs"), rf"//.*|{_BLOCK}|{_STRING}|`[^`]* [^`]*`"
)
_PROSE |= dict.fromkeys(
    (".sh", ".toml", ".yml", "Makefile", ".ci/run", "CMakeLists.txt"), rf"(?:^|(?<=\s))#.*|{_STRING}"
)
_PROSE |= {".j2": rf"{_BLOCK}|//.*|\{{#[^#]*#\}}", ".html": r".+"}


def pieces(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of everything in a file that a person reads as prose."""
    text = path.read_text(encoding="utf-8")
    pattern = _reader(path)
    if path.suffix in (".md", ".rst"):
        kept = re.sub(r"^```(?!\{).*?^```$", lambda block: _comments_only(block[0]), text, flags=re.M | re.S)
        kept = re.sub(r"^(?: {4}|\t).*$", "", kept, flags=re.M)
        yield 1, re.sub(r"`[^`\n]*`", lambda code: "x" * len(code[0]), kept)
    elif path.suffix in (".py", ".pyi"):
        yield from _python(text)
    else:
        for found in re.finditer(pattern, text, re.M):
            yield text.count("\n", 0, found.start()) + 1, found[0]


def _reader(path: Path) -> str:
    """Return the pattern of the prose in a file, "" if it is not checked."""
    keys = (path.name, path.suffix, path.relative_to(ROOT).as_posix())
    return next((_PROSE[key] for key in keys if key in _PROSE), "")


def _comments_only(block: str) -> str:
    return "\n".join(line.partition("# ")[2] if "# " in line else "" for line in block.split("\n"))


def _python(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, re.sub(r"^\s*(?:>>>|\.\.\.) .*$", "", node.value, flags=re.M)
    comments: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if comments and comments[-1][0] + comments[-1][1].count("\n") + 1 == token.start[0]:
                comments[-1] = (comments[-1][0], f"{comments[-1][1]}\n{token.string}")
            else:
                comments.append((token.start[0], token.string))
    yield from comments


def findings(path: Path) -> Iterator[str]:
    """Yield one line per finding in a file."""
    name = path.relative_to(ROOT).as_posix()
    for line, marked in pieces(path):
        text = _MARK.sub(lambda mark: " " * len(mark[0]), marked)
        for pattern, fix in _COMPILED:
            for found in pattern.finditer(text):
                place = line + text.count("\n", 0, found.start())
                yield f"{name}:{place}: {' '.join(found[0].split())!r}: write {fix}"
    limit = next((most for pattern, most in LINES.items() if _matches(name, pattern)), None)
    lines = path.read_text(encoding="utf-8").count("\n")
    if limit and lines > limit:
        yield f"{name}: {lines} lines, at most {limit}"
    if any(_matches(name, pattern) for pattern in EASE):
        ease = reading_ease(path)
        if ease < 50:
            yield f"{name}: Flesch reading ease {ease:.0f}, at least 50: shorter sentences, shorter words"


def _matches(name: str, pattern: str) -> bool:
    return Path(name).match(pattern) or (
        pattern.startswith("docs/**") and name.startswith("docs/") and name.endswith(".md")
    )


def reading_ease(path: Path) -> float:
    """Return the Flesch reading ease of the running text of a page: no code, tables, headings or addresses."""
    import textstat

    text = re.sub(r"(?s:^```.*?^```$)|^(?: {4}|\t|\||#|:|!\[).*$", "", path.read_text(encoding="utf-8"), flags=re.M)
    text = re.sub(r"\]\([^)]*\)|[\[*]|`\{[^`]*`", "", text)
    text = re.sub(r"`[^`\n]*`", "it", text)  # a name in code is one short word
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=- |\d+\. )", text) if part.strip()]
    joined = " ".join(part if part[-1] in ".!?" else f"{part.rstrip(':;,')}." for part in paragraphs)
    return float(textstat.flesch_reading_ease(joined))


def main() -> int:
    """Check the files named, or all files that git tracks."""
    named = (
        sys.argv[1:]
        or subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    )
    paths = [path for path in (Path(ROOT, name).resolve() for name in named) if path != Path(__file__).resolve()]
    found = [line for path in paths if path.is_file() and _reader(path) for line in findings(path)]
    print(*found, sep="\n")
    print(f"prose: {len(found)} findings in {len(paths)} files")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
