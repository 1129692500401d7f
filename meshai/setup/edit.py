"""Sets values in the text of a configuration and leaves every other byte alone: comments, order, spelling.

PyYAML says where each value stands; only those spans are replaced, and a key that is not there yet gets a line at the
end of its section. What came out is parsed and compared with what was wanted before anybody sees it.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from meshai.config.document import Path, parse, path_text
from meshai.errors import UsageError

_PLAIN = re.compile(r"^[A-Za-z/][\w./:+-]*$")
_COMMENT = re.compile(r"^([ \t]+)(#.*)$")


def apply(text: str, changes: Mapping[Path, object]) -> str:
    """The text with these values set, one after the other. Raises UsageError when a change cannot be made safely."""
    wanted = parse(text.encode("utf-8")).data
    for path, value in changes.items():
        text = _set(text, path, value)
        wanted = _with(wanted, path, value)
    done = parse(text.encode("utf-8"))
    if done.mistakes or done.data != wanted:
        keys = ", ".join(path_text(path) for path in changes)
        raise UsageError(f"this file is written in a way that cannot be changed safely; set by hand: {keys}")
    return text


def _set(text: str, path: Path, value: object) -> str:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value):
        return _append(text, path, value)
    node, key, depth = _walk(root, path)
    if depth == len(path):
        return _replace(text, key, node, value)
    rest = path[depth:]
    if isinstance(node, yaml.ScalarNode):  # `llm:` with nothing below it
        return _below(text, key, node, rest, value)
    if not isinstance(node, yaml.MappingNode) or not isinstance(rest[0], str):
        raise UsageError(f"{path_text(path)}: there is no place for it in this file")
    return _into(text, node, rest, value, is_root=depth == 0)


def _walk(root: yaml.Node, path: Path) -> tuple[yaml.Node, yaml.Node, int]:
    """The deepest node on the way to a value, the key in front of it, and how many steps it took."""
    node, key = root, root
    for depth, part in enumerate(path):
        found: tuple[yaml.Node, yaml.Node] | None = None
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == part), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = (node.value[part], node.value[part])
        if found is None:
            return node, key, depth
        key, node = found
    return node, key, len(path)


def _replace(text: str, key: yaml.Node, node: yaml.Node, value: object) -> str:
    start, end = node.start_mark.index, _end(node, text)
    rendered = inline(value)
    colon = text.find(":", key.end_mark.index) + 1 if key is not node else start
    if start == end:  # no value yet: the mark is right behind the colon
        return _put(text, start, end, f" {rendered}")
    is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    if is_block and (comment := _COMMENT.match(_rest_of_line(text, end))):
        end += len(comment[0])  # it speaks of an entry that goes
    if key is not node and not text[colon:start].strip():
        return _put(text, colon, end, f" {rendered}")
    return _put(text, start, end, rendered)


def _put(text: str, start: int, end: int, new: str) -> str:
    """Replace a span; a comment behind it keeps its column where there is room."""
    comment = _COMMENT.match(_rest_of_line(text, end))
    if comment is None or "\n" in text[start:end]:
        return text[:start] + new + text[end:]
    gap = max(2, len(comment[1]) + (end - start) - len(new))
    return text[:start] + new + " " * gap + text[end + len(comment[1]) :]


def _into(text: str, node: yaml.MappingNode, rest: Path, value: object, *, is_root: bool) -> str:
    """A new key in a mapping that is there."""
    if node.flow_style:
        inside = f"{inline(rest[0])}: {inline(_nested(rest[1:], value))}{', ' if node.value else ''}"
        at = node.start_mark.index + 1
        return text[:at] + inside + text[at:]
    at = _end(node, text)
    at += len(_rest_of_line(text, at)) if at and text[at - 1] != "\n" else 0
    lines = _block(rest, value, node.start_mark.column)
    return _add_lines(text, at, ["", *lines] if is_root and len(rest) > 1 else lines)


def _below(text: str, key: yaml.Node, node: yaml.ScalarNode, rest: Path, value: object) -> str:
    if node.value not in ("", "~", "null") or not isinstance(rest[0], str):
        raise UsageError(f"{key.value}: a section is needed here")
    text = text[: node.start_mark.index] + text[node.end_mark.index :]
    at = node.start_mark.index
    at += len(_rest_of_line(text, at))
    return _add_lines(text, at, _block(rest, value, key.start_mark.column + 2))


def _append(text: str, path: Path, value: object) -> str:
    return _add_lines(text, len(text), ["", *_block(path, value, 0)] if text.strip() else _block(path, value, 0))


def _add_lines(text: str, at: int, lines: list[str]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    added = newline.join(lines)
    if at and text[at - 1] not in "\n":
        return text[:at] + newline + added + (text[at:] or newline)
    return text[:at] + added + newline + text[at:]


def _block(rest: Path, value: object, indent: int) -> list[str]:
    """``llm:`` / ``endpoints:`` / … as lines; a list of mappings gets lines of its own."""
    lines = []
    for depth, key in enumerate(rest):
        prefix = " " * (indent + 2 * depth)
        is_last = depth == len(rest) - 1
        items = value if isinstance(value, list) else []
        if is_last and items and isinstance(items[0], dict):
            lines.append(f"{prefix}{key}:")
            for item in items:
                pairs = [f"{name}: {inline(inner)}" for name, inner in item.items()]
                lines += [f"{prefix}  {'- ' if not number else '  '}{pair}" for number, pair in enumerate(pairs)]
        else:
            lines.append(f"{prefix}{key}: {inline(value)}" if is_last else f"{prefix}{key}:")
    return lines


def inline(value: object) -> str:
    """A value on one line; text in quotes unless it can be nothing else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and _PLAIN.match(value) and yaml.safe_load(value) == value:
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {inline(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_quoted(item) if isinstance(item, str) else inline(item) for item in value) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    """JSON is YAML, with one exception: DEL to U+009F are not allowed in it as they are."""
    return re.sub(
        r"[\x7f-\x9f\u2028\u2029\ufeff]", lambda m: f"\\u{ord(m[0]):04x}", json.dumps(text, ensure_ascii=False)
    )


def _end(node: yaml.Node, text: str) -> int:
    """Where a node's text ends. PyYAML lets a block collection reach to the next token, over the comments between."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return max(_end(last[0], text), _end(last[1], text)) if isinstance(last, tuple) else _end(last, text)
    end = int(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode) and node.style is None:
        return int(node.start_mark.index) + len(text[node.start_mark.index : end].rstrip())
    return end


def _rest_of_line(text: str, at: int) -> str:
    end = text.find("\n", at)
    return text[at : end if end >= 0 else len(text)].rstrip("\r")


def _nested(rest: Path, value: object) -> object:
    for key in reversed(rest):
        value = {key: value}
    return value


def _with(data: dict[str, Any], path: Path, value: object) -> dict[str, Any]:
    """A copy of the data with a value set; sections that are missing or empty are made."""
    data = copy.deepcopy(data)
    here: Any = data
    for part, below in itertools.pairwise(path):
        if isinstance(here, dict) and here.get(str(part)) is None and isinstance(below, str):
            here[part] = {}
        here = here[part]
    here[path[-1]] = value
    return data
