"""The example file, made from the model: every key with its default and its sentence. Also the reference."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from meshai.config.later import note
from meshai.config.model import Settings

COMMENT_COLUMN = 32
MAX_WIDTH = 118
HEAD = """\
# MeshAI's configuration. Every key is optional; the values shown are the defaults.
#
# Looked for in: -c FILE, $MESHAI_CONFIG, ./config.yaml, ~/.config/meshai/config.yaml, /etc/meshai/config.yaml
# Check it:      meshai config check FILE
# In place of a line, set a variable: reply.max_bytes is MESHAI_REPLY__MAX_BYTES. The key of the model may come from
# LLM_API_KEY or the systemd credential llm_api_key instead of this file.
# Put quotes around what begins with ! @ # % * & or a backtick: YAML gives those a meaning of its own.
"""
_PLAIN = re.compile(r"^[\w/][\w./:+-]*$")


def example() -> str:
    """The text of ``config.example.yaml``."""
    lines = [line if line.startswith((" ", "#")) else f"\n{line}" for line in _section(Settings(), 0)]
    return HEAD + "\n".join(lines) + "\n"


def _section(section: BaseModel, depth: int) -> Iterator[str]:
    prefix = f"{type(section).__name__.lower()}." if depth == 1 else ""
    for name, field in type(section).model_fields.items():
        yield from _entry(name, field, getattr(section, name), depth, prefix)


def _entry(name: str, field: FieldInfo, value: object, depth: int, prefix: str) -> Iterator[str]:
    comment = _comment(f"{prefix}{name}", field, value)
    if isinstance(value, BaseModel):
        yield _line(depth, f"{name}:", comment)
        yield from _section(value, depth + 1)
    elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
        yield from _lines(depth, f"{name}:", comment)
        for item in value:
            first, *rest = [line[2:] for line in _section(item, depth + 2)]
            yield _dashed(first, depth + 1)
            yield from (f"  {line}" for line in rest)
    else:
        yield from _lines(depth, f"{name}: {_scalar(value)}", comment)


def _dashed(line: str, depth: int) -> str:
    """The first line of a list item: its dash stands where the indentation was; the comment stays in its column."""
    indent = "  " * depth
    return f"{indent}- {line.strip()}" if "#" not in line else _line(depth, *_apart(f"- {line.strip()}"))


def _apart(line: str) -> tuple[str, str]:
    text, _, comment = line.partition(" # ")
    return text.rstrip(), comment


def _lines(depth: int, text: str, comment: str) -> Iterator[str]:
    """One line, or the comment above it when both together are too wide."""
    line = _line(depth, text, comment)
    if len(line) <= MAX_WIDTH:
        yield line
        return
    yield f"{'  ' * depth}# {comment}"
    yield f"{'  ' * depth}{text}"


def _line(depth: int, text: str, comment: str) -> str:
    indented = f"{'  ' * depth}{text}"
    return f"{f'{indented}  ':<{COMMENT_COLUMN}}# {comment}" if comment else indented


def _comment(key: str, field: FieldInfo, value: object) -> str:
    later = "" if note(key.rpartition(".")[0]) else note(key, value)  # said once, at the section
    return f"{field.description or ''}{f' ({later})' if later else ''}".strip()


def _scalar(value: object) -> str:
    if isinstance(value, SecretStr):
        return json.dumps(value.get_secret_value())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and _PLAIN.match(value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)
