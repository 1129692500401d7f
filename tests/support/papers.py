"""What the papers in docs/ define, and what code, tests and papers cite."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CODE_DIRS = ("meshai", "tests", "benchmarks", "systemd")

ID = r"S[0-4]-\d{1,2}|Z-M\d{1,2}|[MA]\d{1,2}|P\d|I\d{1,2}"
SECTION = r"\d+(?:\.\d+)*[a-z]?|[A-E](?:\.\d+)*"

# Where an id is defined: first thing on its line, or in bold.
_DEFINED_FIRST = re.compile(rf"^[\s|*#-]*({ID})\b(?:\s*[…–]\s*(\d+))?")
_DEFINED_BOLD = re.compile(rf"\*\*({ID})\b")
_HEADING = re.compile(rf"^#+\s+§?({SECTION})(?:\s*–\s*({SECTION}))?[.:]?(?:\s|$)")
_BOLD_SECTION = re.compile(rf"\*\*({SECTION})\*\*")

# Where an id or a section is cited.
_CITED_ID = re.compile(rf"(?<![\w!.-])({ID})(?![\w-]|\.\w)")
_CITED_PAPER = re.compile(
    rf"(?P<paper>(?:docs/)?\w+\.md|DESIGN)[)`]*[,:]?\s+(?P<first>§(?:{SECTION})|[B-E]\.\d+(?:\.\d+)*)"
    rf'(?P<more>(?:(?:,| and| to|–)\s*§(?:{SECTION}))*)(?P<after>\s+"?(?:item \d+|[A-Z][a-z]+))?'
)
_SECTION_SIGN = re.compile(rf"§({SECTION})")


@dataclass(frozen=True)
class Citation:
    """Something cited, and where."""

    where: str
    what: str
    paper: str = ""  # file name in docs/ for a section, "" for an id or an unnamed paper

    def __str__(self) -> str:
        return f"{self.where}: {self.paper} {self.what}"


@dataclass
class Papers:
    """Everything the files in docs/ define."""

    ids: set[str] = field(default_factory=set)
    sections: dict[str, set[str]] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)


def read_papers() -> Papers:
    """Everything docs/ defines now."""
    found = Papers()
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        found.text[path.name] = text
        found.sections[path.name] = _sections(text)
        found.ids |= _ids(text)
    return found


def pages() -> list[Path]:
    """The papers and pages for people."""
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def _sections(text: str) -> set[str]:
    found = set()
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading:
            found |= {group for group in heading.groups() if group}
        found |= set(_BOLD_SECTION.findall(line))
        entry = re.match(r"^(\d+)\. ", line)  # the numbered facts of a list
        if entry:
            found.add(entry[1])
    return found


def _ids(text: str) -> set[str]:
    found = set(_DEFINED_BOLD.findall(text))
    for line in text.splitlines():
        match = _DEFINED_FIRST.match(line)
        if match is None:
            continue
        found.add(match[1])
        if match[2]:  # a range: S1-1…3
            stem, first = re.fullmatch(r"(.*?)(\d+)", match[1]).groups()
            found |= {f"{stem}{number}" for number in range(int(first), int(match[2]) + 1)}
    return found


def cited_ids() -> list[Citation]:
    """Ids in comments, docstrings and papers."""
    return [Citation(where, match[1]) for where, text in remarks() for match in _CITED_ID.finditer(text)]


def cited_sections() -> list[Citation]:
    """Sections in comments, docstrings and papers; an unnamed paper is the page itself, or any for code."""
    found = []
    for where, text in remarks():
        named = []
        for match in _CITED_PAPER.finditer(text):
            named.append(match.span())
            paper = "architecture.md" if match["paper"] == "DESIGN" else match["paper"].removeprefix("docs/")
            numbers = [match["first"].lstrip("§"), *_SECTION_SIGN.findall(match["more"])]
            found += [Citation(where, number, paper) for number in numbers]
            if match["after"] and match["paper"] == "DESIGN":
                found.append(Citation(where, match["after"].strip(' "'), f"architecture.md §{numbers[-1]}"))
        here = Path(where).name if where.endswith(".md") else ""
        for match in _SECTION_SIGN.finditer(text):
            if not any(start <= match.start() < end for start, end in named):
                found.append(Citation(where, match[1], here))
    return found


def remarks() -> list[tuple[str, str]]:
    """(file, text) of everything that may cite: comments and docstrings of code, whole papers."""
    found = [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in pages() if path.exists()]
    for folder in CODE_DIRS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".sql", ".service", ".rules", ".toml") and "docs" not in path.parts:
                found.append((str(path.relative_to(ROOT)), _remarks_of(path)))
    return found


def _remarks_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        return "\n".join(line.partition("--")[2] for line in text.splitlines())
    if path.suffix != ".py":
        return "\n".join(line.partition("#")[2] for line in text.splitlines())
    pieces = [
        token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(text)):
        # Docstrings, and the strings that stand below a constant.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            pieces.append(node.value.value)
    pieces += re.findall(r"\bS[0-4]-\d{1,2}\b", text)  # in any string: nothing else looks like these
    return "\n".join(pieces)
