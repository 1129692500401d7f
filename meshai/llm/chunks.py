"""Reads one object of an OpenAI-compatible answer, streamed or plain, with the variations of other servers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshai.llm.base import Usage

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")  # DeepSeek and llama.cpp; Ollama, vLLM, OpenRouter


@dataclass(frozen=True, slots=True)
class Piece:
    """What one object says."""

    text: str = ""
    reasoning: bool = False
    ended: bool = False  # the model is done, or the [DONE] line
    truncated: bool = False
    usage: Usage | None = None
    is_answer: bool = False  # it has the form of an answer, even an empty one
    error: object = None
    status: int = 500


def read(event: dict[str, Any]) -> Piece:
    """One object of a stream, or a plain answer as a whole. Fields of wrong types count as absent."""
    if event.get("error"):
        return Piece(error=event, status=_status(event))
    choices = event.get("choices")
    usage = _usage(event)
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        done = event.get("done") is True
        return Piece(ended=done, usage=usage, is_answer=isinstance(choices, list) or done)
    choice = choices[0]
    plain = choice.get("message")
    said = plain if isinstance(plain, dict) else choice.get("delta")
    said = said if isinstance(said, dict) else {}
    text, thought = _content(said.get("content"))
    if not text and isinstance(said.get("refusal"), str):
        text = said["refusal"]
    finish = choice.get("finish_reason")
    return Piece(
        text=text,
        reasoning=thought or any(said.get(name) for name in REASONING_FIELDS),
        ended=bool(finish) or isinstance(plain, dict),
        truncated=finish in {"length", "max_tokens"},
        usage=usage,
        is_answer=True,
    )


def _content(content: object) -> tuple[str, bool]:
    """The text, and whether there was thinking; Mistral sends a list of parts."""
    if isinstance(content, str):
        return content, False
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    text = "".join(str(part.get("text", "")) for part in parts if part.get("type") in {"text", "output_text"})
    return text, any(part.get("type") in {"thinking", "reasoning"} for part in parts)


def _usage(event: dict[str, Any]) -> Usage | None:
    usage = event.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if cached is None:
        cached = usage.get("prompt_cache_hit_tokens")  # DeepSeek
    return Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")), _count(cached))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else 0


def _status(event: dict[str, Any]) -> int:
    error = event["error"]
    code = error.get("code") if isinstance(error, dict) else None
    code = int(code) if isinstance(code, str) and code.isdecimal() else code
    return code if isinstance(code, int) and 400 <= code < 600 else 500
