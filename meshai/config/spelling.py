"""What the writer of a YAML file probably meant, said in a sentence that names the cure."""

from __future__ import annotations

import re

import yaml

_NODE_TAG = re.compile(r"^![0-9a-fA-F]{1,8}$")
_BARE_NODE = re.compile(r"[\[,{:]\s*![0-9a-fA-F]{8}")
_TAG_MEANING = 'a value that begins with ! must be in quotes, for example "!a1b2c3d4" (a bare ! is a YAML tag)'
_EXPONENT = re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
_UNIT = re.compile(r"^[-+]?[0-9]+(\.[0-9]+)?\s*[A-Za-z%]+$")


def explain_syntax(error: yaml.MarkedYAMLError, text: str) -> tuple[str, int, int]:
    """The sentence, line and column (from 1) of a file that is not YAML. The file's text is never quoted."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    problem = error.problem or "this is not YAML"
    lines = text.splitlines()
    if "flow" in (error.context or "") and mark and (bare := _bare_node(lines, error.context_mark, mark)):
        return _TAG_MEANING, *bare
    for pattern, meaning in _SYNTAX:
        if match := pattern.search(f"{error.context or ''}; {problem}"):
            return match.expand(meaning), line, column
    return problem, line, column


def _bare_node(lines: list[str], opened: yaml.Mark | None, noticed: yaml.Mark) -> tuple[int, int] | None:
    """Where an unquoted node id stands (line and column from 1) between a bracket and the place YAML gave up at.

    YAML takes ``!a1b2c3d4]`` for a tag, so it misses the bracket only some lines later.
    """
    first = opened.line if opened else noticed.line
    for number, line in enumerate(lines[first : noticed.line + 1], first):
        start = opened.column if opened and number == first else 0
        if match := _BARE_NODE.search(line, start):
            return number + 1, match.end() - len("!a1b2c3d4") + 1
    return None


_SYNTAX: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (r"found character '\\t'", "a tab; YAML is indented with spaces only"),
        (r"found character '([@`%])'", r"a value that begins with \1 must be in quotes"),
        (r"while scanning a tag", _TAG_MEANING),
        (r"found undefined alias", "a value that begins with * must be in quotes"),
        (r"while scanning an (alias|anchor)", "a value that begins with * or & must be in quotes"),
        (
            r"mapping values are not allowed",
            "a text with ': ' in it must be in quotes (or: wrong indentation, or no space after a ':' above)",
        ),
        (r"found unknown escape character", r"a \\ in double quotes must be doubled; single quotes take it as it is"),
        (
            r"while scanning a quoted scalar.*end of (stream|document)",
            "a quotation mark is missing: the text never ends",
        ),
        (r"could not find expected ':'", "a ':' with a space after it is missing after the key"),
        (r"while parsing a flow (sequence|mapping)", "a comma or the closing bracket is missing"),
        (r"while parsing a block (mapping|collection)", "the indentation does not match the lines above"),
        (r"found duplicate anchor", "this anchor (&name) exists already"),
        (r"but found another document", "a second document begins here; a configuration has only one"),
    )
)


def explain_tag(tag: str, *, secret: bool = False) -> str:
    """Why a value that YAML took for a tag is refused."""
    shown = tag.rstrip(",]}")
    if _NODE_TAG.match(shown) and not secret:
        return f'put quotes around the node id: "{shown}" (a bare ! is a YAML tag)'
    return _TAG_MEANING


def explain_not_text(text: str, value: object) -> str:
    """Why an unquoted value is not the text it looks like; empty when nothing is known."""
    if isinstance(value, bool):
        return f"YAML reads {text} as {'true' if value else 'false'}; put quotes around it"
    if isinstance(value, int | float):
        return f"YAML reads {text} as the number {value}; put quotes around it"
    return ""


def explain_not_number(text: str, *, plain: bool) -> str:
    """Why a text is not the number it looks like; empty when nothing is known."""
    if _EXPONENT.match(text):
        return f"YAML reads {text} as text; write the number out"
    if _UNIT.match(text):
        return "write only the number, without a unit"
    if re.match(r"^[-+]?[0-9]+,[0-9]+$", text):
        return "write a point, not a comma"
    if not plain and re.match(r"^[-+]?[0-9]+(\.[0-9]+)?$", text):
        return "remove the quotes"
    return ""
