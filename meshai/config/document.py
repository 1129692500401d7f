"""From the bytes of a YAML file to plain values that know their line, column and spelling.

PyYAML's own loader keeps the last of two equal keys, turns ``010`` into 8 and reports only the first mistake. Here
the node tree is walked by hand: every mistake is kept, and each value can later be explained where it stands.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from meshai.config.spelling import explain_syntax, explain_tag
from meshai.errors import Mistake

MAX_BYTES = 1_000_000
"""A real configuration has a few kilobytes; anything like this is the wrong file."""
MAX_VALUES = 20_000
"""What aliases may unfold to: nine lines of YAML can otherwise become gigabytes."""
MAX_DEPTH = 30

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_OCTAL = re.compile(r"^[-+]?0[0-7_]+$")
_SEXAGESIMAL = re.compile(r"^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$")


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value stands (line and column from 1) and how it was written."""

    line: int
    column: int
    text: str = ""
    plain: bool = False  # a scalar without quotes
    comment: bool = False  # nothing but a comment follows


@dataclass(slots=True)
class Document:
    """The values of a file, the place of each by path, and what is wrong with its YAML."""

    data: dict[str, Any] = field(default_factory=dict)
    spots: dict[Path, Spot] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    broken: set[Path] = field(default_factory=set)  # already complained about

    def spot(self, path: Path) -> Spot:
        """The place of a value, or of the nearest thing around it."""
        while path and path not in self.spots:
            path = path[:-1]
        return self.spots.get(path, Spot(0, 0))


def parse(raw: bytes) -> Document:
    """Read a configuration; never raises. After a syntax error there are mistakes and no data."""
    if len(raw) > MAX_BYTES:
        return _refused(f"the file has {len(raw):,} bytes, a configuration has at most {MAX_BYTES:,}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _undecodable(raw, error)
    try:
        root = _Loader(text).get_single_node()
    except yaml.reader.ReaderError as error:
        line, column = _position(text, error.position)
        return _refused(f"the control character U+{error.character:04X} is not allowed in YAML", line, column)
    except yaml.MarkedYAMLError as error:
        return _refused(*explain_syntax(error, text))
    if root is None or root.tag == f"{_TAG}null":
        return Document()
    if isinstance(root, yaml.MappingNode):
        return _Walk(text).run(root)
    mark = root.start_mark
    kind = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
    return _refused(f"the file must consist of sections such as `bot:`, this is {kind}", mark.line + 1, mark.column + 1)


def path_text(path: Path) -> str:
    """``llm.endpoints.0.model``."""
    return ".".join(str(part) for part in path)


def _refused(message: str, line: int = 0, column: int = 0) -> Document:
    return Document(mistakes=[Mistake("", message, line, column)])


def _undecodable(raw: bytes, error: UnicodeDecodeError) -> Document:
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return _refused("the file is UTF-16; save it as UTF-8")
    before = raw[: error.start]
    line = before.count(b"\n") + 1
    column = len(before) - before.rfind(b"\n")
    return _refused(f"the byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8", line, column)


def _position(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


class _Loader(yaml.SafeLoader):
    """Composes only; refuses nesting that would exhaust Python's stack."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, "nested too deeply", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _TooManyError(Exception):
    """The aliases unfold without end."""


class _Walk:
    """Turns a node tree into values; remembers every spot and mistake."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._left = MAX_VALUES
        self._open: list[yaml.Node] = []  # the containers around this one: an alias to one of them has no end
        self._scalars = yaml.constructor.SafeConstructor()
        self.document = Document()

    def run(self, root: yaml.MappingNode) -> Document:
        try:
            self.document.data = self._mapping(root, ())
        except _TooManyError:
            return _refused(f"the aliases (*name) of this file unfold to more than {MAX_VALUES:,} values")
        return self.document

    def _value(self, node: yaml.Node, path: Path) -> Any:  # noqa: ANN401 - YAML holds anything
        self._left -= 1
        if self._left < 0:
            raise _TooManyError
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if any(node is outer for outer in self._open):
            self._wrong(path, "this alias contains itself")
            return None
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            self._wrong(path, explain_tag(node.tag))
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        self._open.append(node)
        values = []
        for number, item in enumerate(node.value):
            self.document.spots[(*path, number)] = self._spot(item, item)
            values.append(self._value(item, (*path, number)))
        self._open.pop()
        return values

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self._open.append(node)
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == f"{_TAG}merge":
                self._wrong(path, "a key must be a word (merging with << is not supported)", self._spot(key, key))
                continue
            here = (*path, key.value)
            if key.value in values:
                first, again = self.document.spots[here], self._spot(key, value)
                self._wrong(here, f"given twice, in line {first.line} and line {again.line}", again)
                continue
            self.document.spots[here] = self._spot(key, value)
            values[key.value] = self._value(value, here)
        self._open.pop()
        return values

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        tag, text = node.tag.removeprefix(_TAG), node.value
        if node.tag == tag or tag not in ("null", "bool", "int", "float", "str", "timestamp"):
            self._wrong(path, explain_tag(node.tag, secret=is_secret(path)))
            return None
        if tag in ("str", "timestamp"):  # a date is text to every setting there is
            return text
        try:
            value = getattr(self._scalars, f"construct_yaml_{tag}")(node)
        except (ValueError, KeyError):  # 0x_, !!int abc, more than 4300 digits
            return text
        if tag in ("int", "float") and (trap := _number_trap(text, value)):
            self._wrong(path, trap if not is_secret(path) else "put quotes around it")
        return value

    def _wrong(self, path: Path, message: str, spot: Spot | None = None) -> None:
        if spot is None:  # the value itself, not just a key beside it
            spot = self.document.spot(path)
            self.document.broken.add(path)
        self.document.mistakes.append(Mistake(path_text(path), message, spot.line, spot.column))

    def _spot(self, key: yaml.Node, value: yaml.Node) -> Spot:
        mark, end = key.start_mark, value.start_mark
        if not isinstance(value, yaml.ScalarNode):
            return Spot(mark.line + 1, mark.column + 1)
        plain = value.style is None
        empty = plain and not value.value and end.line < len(self._lines)
        rest = self._lines[end.line][end.column :] if empty else ""
        return Spot(mark.line + 1, mark.column + 1, value.value, plain, comment=rest.lstrip().startswith("#"))


def is_secret(path: Path) -> bool:
    """Whether the value at this path is never to be shown."""
    return any(part in ("api_key", "token", "extra_body") for part in path)


def _number_trap(text: str, value: float) -> str:
    """Why a number is not what its writer meant; empty when it is."""
    if _SEXAGESIMAL.match(text):
        return f"YAML reads {text} as the number {value:g} (base 60); put quotes around it, or write the plain number"
    if _OCTAL.match(text):
        return f"YAML reads {text} as the number {value:g} (octal); quote it, or leave the leading 0 out"
    if not math.isfinite(value):
        return f"{text} is not a usable number"
    return ""
