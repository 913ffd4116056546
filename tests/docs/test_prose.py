"""The prose check: phrases, length and reading ease per file type; see `tools/prose.py`."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from prose import EASE, findings  # noqa: E402

sys.path.remove(str(ROOT / "tools"))

FENCE = "```"
#: Each of these sentences breaks the rule with this fix, and no other one.
FOUND = {
    "A fit takes 13 us a row.": '"per row"',
    "It has one edge a neuron.": '"per row"',
    "There are so many of them.": "the number",
    "It works, whatever the data are.": "the noun",
    "What is filled up is ignored.": "with a noun",
    "The net is small. Of what it learned nothing is kept.": "with a noun",
    "Of each class one row is kept.": "subject first",
    "Rows are read. Those that are.": "a full sentence",
    "The message says why.": '"reports"',
    "The model knows the answer.": "no personification",
    "A step is dear.": '"expensive"',
    "Both are trained by turns.": '"alternating"',
    "It is written now and\nthen.": '"periodically"',
}
NOT_FOUND = (
    "A fit takes 13 us per row.",
    "Pass a row, a step or a class.",
    "What does it compute?",
    "This shows what it computes.",
    "All of these are weights.",
    "It reports that the loss is low. That is enough.",
    "These are held\n\nfor later.",
    "The steady state is an essay.",
)
#: A file per place of a sentence: a name, and a function that writes the file.
PLACES = {
    "page": ("docs/page.md", "# Title\n\n{}\n".format),
    "list": ("docs/page.md", "- {}\n".format),
    "code on a page": ("docs/page.md", lambda s: f"{FENCE}python\nx = 1  # {' '.join(s.split())}\n{FENCE}\n"),
    "docstring": ("src/a.py", 'def f():\n    """{}"""\n'.format),
    "message": ("src/a.py", lambda s: f"raise ValueError({s!r})\n"),
    "comment": ("src/a.py", lambda s: "".join(f"# {line}\n" if line else "\n" for line in s.split("\n"))),
    "C comment": ("src/a.c", lambda s: "".join(f"// {line}\n" if line else "\n" for line in s.split("\n"))),
    "C block": ("src/a.hpp", lambda s: "/* " + s.replace("\n", "\n * ") + " */\nint a;\n"),
    "C string": ("src/a.cpp", lambda s: f'throw error("{" ".join(s.split())}");\n'),
    "TypeScript": ("play/a.ts", lambda s: f"const text = `{s}`;\n"),
    "template": ("src/a.h.j2", lambda s: "/* " + s + " */\n"),
    "make": ("Makefile", lambda s: "".join(f"# {line}\n" if line else "\n" for line in s.split("\n")) + "all:\n"),
}


@pytest.mark.parametrize("place", PLACES)
def test_phrases_are_found(place):
    name, write = PLACES[place]
    for sentence, fix in FOUND.items():
        found = list(findings(name, write(sentence)))
        assert len(found) == 1, (sentence, found)
        assert fix in found[0]
        assert found[0].startswith(f"{name}:")


@pytest.mark.parametrize("place", PLACES)
def test_plain_sentences_are_accepted(place):
    name, write = PLACES[place]
    for sentence in NOT_FOUND:
        if "\n\n" not in sentence or place in ("page", "docstring", "comment", "C comment", "make"):
            assert list(findings(name, write(sentence))) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docs/page.md", "The value `so many` is a name.\n"),
        ("docs/page.md", f"{FENCE}python\nsaid = tell(dear)\n{FENCE}\n"),
        ("docs/page.md", "    said = tell(dear)\n"),
        ("src/a.py", "said = tell(dear)\n"),
        ("src/a.py", 'def f():\n    """Return 1.\n\n    >>> said = "so many"\n    """\n'),
        ("src/a.py", "a = 1  # the last value\nb = 2  # a row of it\n"),
        ("src/a.c", "int said = tell(dear);\n"),
    ],
)
def test_code_is_not_checked(name, text):
    assert list(findings(name, text)) == []


def test_the_line_of_a_finding():
    text = '"""Title."""\n\n\ndef f():\n    # one\n    # and so\n    # many\n    return 1\n'
    (found,) = findings("src/a.py", text)
    assert found.startswith("src/a.py:6: 'so many'")


def test_the_length_of_a_page():
    assert list(findings("docs/page.md", "Short.\n" * 250)) == []
    (found,) = findings("docs/page.md", "Short.\n" * 251)
    assert "251 lines, at most 250" in found
    (found,) = findings("CONTRIBUTING.md", "Short.\n" * 121)
    assert "121 lines, at most 120" in found
    assert list(findings("src/page.md", "Short.\n" * 251)) == []


def test_the_reading_ease_of_a_page():
    pytest.importorskip("textstat")
    easy = "Load the data. Fit the model. Then save it to a file.\n"
    hard = "Regularisation hyperparameters considerably influence generalisation characteristics of architectures.\n"
    for name in ("README.md", "docs/tutorial.md", "docs/how-to/page.md"):
        assert list(findings(name, easy)) == []
        (found,) = findings(name, hard)
        assert f"at least {EASE}" in found
    assert list(findings("docs/explanation/page.md", hard)) == []
    code = f"{FENCE}text\n{hard}{FENCE}\n\n| {hard.strip()} |\n"
    assert list(findings("docs/how-to/page.md", f"{easy}\n{code}")) == []
