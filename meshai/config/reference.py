"""The reference of the configuration as Markdown, made from the model: ``docs/configuration.md`` is this text."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, SecretStr

from meshai.config.later import note
from meshai.config.model import ChannelEntry, Endpoint, Settings

_HEAD = """\
# Configuration reference

<!-- Made from meshai/config/model.py. To renew it: python -m meshai.config.reference > docs/configuration.md -->

One YAML file; every key is optional. `meshai config check FILE` tells every mistake at once, `meshai config example`
prints a commented file to start from. `MESHAI_<SECTION>__<KEY>` in the environment overrides a value.
"""
_LISTS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("channels[]", "one entry of `channels`", ChannelEntry),
    ("llm.endpoints[]", "one entry of `llm.endpoints`", Endpoint),
)


def markdown() -> str:
    """The whole page; ends with a newline."""
    defaults = Settings()
    parts = [_HEAD]
    for name, field in Settings.model_fields.items():
        value = getattr(defaults, name)
        if isinstance(value, BaseModel):
            parts.append(_section(name, field.description or "", type(value), value))
        else:
            parts.append(f"\n## {name}\n\n{field.description}. Default: `{_shown(value)}`.\n")
    parts += [_section(name, text, model, None) for name, text, model in _LISTS]
    return "".join(parts)


def _section(name: str, text: str, model: type[BaseModel], value: BaseModel | None) -> str:
    rows = "".join(_rows(f"{name}.", model, value))
    return f"\n## {name}\n\n{text[:1].upper()}{text[1:]}.\n\n| key | default | meaning |\n|---|---|---|\n{rows}"


def _rows(prefix: str, model: type[BaseModel], value: BaseModel | None) -> Iterator[str]:
    for name, field in model.model_fields.items():
        given = getattr(value, name) if value is not None else field.get_default()
        if isinstance(given, BaseModel):
            yield from _rows(f"{prefix}{name}.", type(given), given)
            continue
        shown = "needed" if value is None and field.is_required() else f"`{_shown(given)}`"
        later = note(f"{prefix}{name}")
        text = (field.description or "").replace("|", "\\|") + (f" ({later})" if later else "")
        yield f"| `{prefix}{name}` | {shown} | {text} |\n"


def _shown(value: object) -> str:
    if isinstance(value, SecretStr | str):
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        return f'"{text}"'
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        return f"{len(value)} local server"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    import sys

    sys.stdout.write(markdown())
