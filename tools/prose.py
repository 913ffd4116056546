"""Check the prose of the project: `python tools/prose.py [FILE ...]`, part of `make style`.

Reports phrases that make technical English hard to read in Markdown pages, docstrings, comments, messages and help
texts, each with a better one. Also reports pages that are too long or have a low Flesch reading ease.
"""

import ast
import io
import re
import subprocess
import sys
import time
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Files that contain the phrases as data.
SKIPPED = ("tools/prose.py", "tests/docs/test_prose.py")
#: Maximum number of lines of a page; the first pattern that matches its path applies.
LINES = {"README.md": 120, "CONTRIBUTING.md": 120, "docs/architecture.md": 120, "docs/*.md": 250}
#: Pages with a minimum Flesch reading ease.
EASY, EASE = ("README.md", "docs/tutorial.md", "docs/how-to/*.md"), 50

_UNIT = (
    r"(?:\d[\d.,]*|[µumn]?s|seconds?|minutes?|hours?|bytes?|[kMG]i?B|times|one|two|three|four|multiply-adds|entries|"
    r"instructions|(?:number|value|row|sample|line|step|neuron|edge|feature|label|weight|input|epoch)s?)"
)
_EACH = (
    "(?:row|fit|step|sample|edge|gradient|neuron|second|minute|tick|class|column|group|feature|chart|start|value|line|"
    "key|epoch|input|output|batch|block|thread|worker|call|kind|layer|weight|iteration|day|file|trial|set|shard)"
)
_OURS = "(?:net|network|mesh|model|stream|encoder|estimator|plan|graph|solver|filter|loss|library|file|page|table)s?"
#: Whole words in any case, and the better expression. A space matches any white space within a paragraph.
PHRASES = {
    f"{_UNIT} an? {_EACH}": '"per row", not "a row"',
    "so (?:many|few)": "the number, or a noun",
    "whoever|whatever|(?:no|some|any)body|someone else|the rest of it|and what not|such as it is": "the noun meant",
    "by heart": "overfit",
    "believ(?:e|es|ed|able)": '"calibrated", "reliable", "assumed"',
    "tells?|told|says?|said|saying": '"reports", "states", "shows"',
    f"{_OURS} (?:knows?|thinks?|wants?|wishes|likes?|speaks?|believes?|hears?|sees)": "no personification",
    "wants": '"needs", "requires"',
    "dear|dearer|dearest|dearly": '"expensive"',
    "mend(?:s|ed|ing)?": '"fix", "correct"',
    "manners?": '"conventions", "way"',
    "by turns|in turns": '"alternating"',
    "held (?:back|for)": '"held out", "assumed"',
    "take stock": '"synchronise", "record"',
    "crew|spool|lots of": "the established term",
    "(?:at|from|to) the desk": '"on the host"',
    "anew|hitherto|thereof|therein|whereof|wherein|thereby": '"again", "new", or nothing',
    "(?:one|two|three) each": '"one per ..."',
    "as it comes|as they come": '"with default settings", "in order of arrival"',
    "(?:to|can|cannot|could|may) be had": '"available"',
    "com(?:e|es|ing) to (?:its|an|their) end": '"ends", "finishes"',
    r"will do(?: as well| too)?(?! \w)": '"works", "is accepted"',
    "as many as (?:pay|are worth)": '"as many as speed up the computation"',
    "now and then": '"periodically", with the interval',
    "goes? by": '"uses", "follows"',
    "of (?:one's|your|its|their) own accord": '"automatically"',
    "at a coin's|coin's error": '"at chance level"',
    "amounts? and classes|classes and amounts?": '"a regression target", "classes"',
    "(?:is|are|be) learned from": '"is trained on"',
    "next to nothing|none too|no more than needed": "the amount",
    "in the end": '"finally", or nothing',
}
#: The same for the start of a sentence, with its capital letter.
STARTS = {
    r"(?:What\b(?![^.:;]*\?)|(?:Of|From|To|By|With|For|At) what)\b": "a sentence with a noun as its subject",
    r"Of (?:an?|the|each|every|all|several|such|one|these|those|its|this|that)\b": "subject first",
    r"(?:That|Those|These|All|Nothing|It) (?:which |that )?(?:is|are|does|do|has|have)\.": "a full sentence",
}
_RULES = [(re.compile(rf"\b(?:{key})\b".replace(" ", r"\s+"), re.I), fix) for key, fix in PHRASES.items()]
_RULES += [(re.compile(rf"(?:^[\x20-]*|[.;:!?|]\s+){key}".replace(" ", r"\s+"), re.M), STARTS[key]) for key in STARTS]
#: Signs of a comment at the start of a line, or the opening quote.
_MARK = re.compile(r"^[ \t]*(?:#:?|//+|/?\*+|>)(?= )|\A[\"`]", re.M)

_BLOCK, _STRING = r"/\*(?:[^*]|\*(?!/))*\*/", r"\"[^\"\n]* [^\"\n]*\""
_C_FILES = (".c", ".h", ".hpp", ".cpp", ".ts", ".css", ".js", ".mjs")
_HASH_FILES = (".sh", ".toml", ".yml", "Makefile", "run", "CMakeLists.txt")
#: Pattern of the prose by name or ending of a file; "" for formats that `pieces` parses.
_PROSE = (
    dict.fromkeys((".md", ".rst", ".py", ".pyi"), "")
    | dict.fromkeys(_C_FILES, rf"(?:^[ \t]*//.*\n)+|//.*|{_BLOCK}|{_STRING}|`[^`]* [^`]*`")
    | dict.fromkeys(_HASH_FILES, rf"(?:^[ \t]*#.*\n)+|(?<=\s)#.*|{_STRING}")
    | {".j2": rf"{_BLOCK}|//.*|\{{#[^#]*#\}}", ".html": ".+"}
)


def _kind(path: Path) -> str:
    return path.name if path.name in _PROSE else path.suffix


def pieces(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of everything in a file that a person reads as prose."""
    kind = _kind(Path(name))
    if kind in (".md", ".rst"):
        text = re.sub(r"^```(?!\{).*?^```$", _comments, text, flags=re.M | re.S)
        yield 1, re.sub(r"^(?: {4}|\t).*$|`[^`\n]*`", lambda code: "x" * len(code[0]), text, flags=re.M)
    elif kind in (".py", ".pyi"):
        yield from _python(text)
    else:
        for found in re.finditer(_PROSE[kind], text, re.M):
            yield text.count("\n", 0, found.start()) + 1, found[0]


def _comments(block: re.Match[str]) -> str:
    """Return the comments of a code block, one per line."""
    return "\n".join(line.partition("# ")[2] for line in block[0].split("\n"))


def _python(text: str) -> Iterator[tuple[int, str]]:
    """Yield strings with a space, without doctests, comments behind code, and all other comments as one text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, re.sub(r"^\s*(?:>>>|\.\.\.) .*$", "", node.value, flags=re.M)
    lines = [""] * (text.count("\n") + 1)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line.strip() != token.string:
            yield token.start[0], token.string
        elif token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string
    yield 1, "\n".join(lines)


def findings(name: str, text: str) -> Iterator[str]:
    """Yield one line per finding in a file; `name` is its path in the repository."""
    for line, piece in pieces(name, text):
        piece = _MARK.sub(lambda mark: " " * len(mark[0]), piece)
        piece = re.sub(r"^[ \t]*$", "\0", piece, flags=re.M)  # not white space: phrases end at a blank line
        for pattern, fix in _RULES:
            for found in pattern.finditer(piece):
                place = line + piece.count("\n", 0, found.start())
                yield f"{name}:{place}: {' '.join(found[0].split())!r}: write {fix}"
    limit = next((most for pattern, most in LINES.items() if fnmatch(name, pattern)), None)
    if limit and text.count("\n") > limit:
        yield f"{name}: {text.count(chr(10))} lines, at most {limit}"
    if any(fnmatch(name, pattern) for pattern in EASY) and (ease := reading_ease(text)) < EASE:
        yield f"{name}: Flesch reading ease {ease:.0f}, at least {EASE}: shorter sentences, shorter words"


def reading_ease(text: str) -> float:
    """Return the Flesch reading ease of the running text of a page: no code, tables, headings or addresses."""
    import textstat

    text = re.sub(r"(?s:^```.*?^```$)|^(?: {4}|\t|\||#|:|!\[).*$", "", text, flags=re.M)
    text = re.sub(r"\]\([^)]*\)|[\[*]|`\{[^`]*`", "", text)
    text = re.sub(r"`[^`\n]*`", "it", text)  # a name in code counts as one short word
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=- |\d+\. )", text) if part.strip()]
    joined = " ".join(part if part[-1] in ".!?" else f"{part.rstrip(':;,')}." for part in paragraphs)
    return float(textstat.flesch_reading_ease(joined))


def main() -> int:
    """Check the given files, or all files that git tracks; return 1 if there are findings."""
    start = time.perf_counter()
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    paths = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT / name for name in tracked]
    files = {path.relative_to(ROOT).as_posix(): path for path in paths if _kind(path) in _PROSE and path.is_file()}
    found = [line for name in files if name not in SKIPPED for line in findings(name, files[name].read_text("utf-8"))]
    summary = f"prose: {len(found)} findings in {len(files)} files, {time.perf_counter() - start:.1f} s"
    print(*found, summary, sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
