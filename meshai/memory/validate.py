"""Is this a summary? Refusals, echoes, errors and inventions must never become memory (I4). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

MIN_RETENTION = 0.5
"""Share of the source's names, numbers and addresses a summary must keep, unless even the digest keeps less."""
TINY_SOURCE_TOKENS = 40
"""A source this short may have a summary as long as itself."""

_REFUSAL = re.compile(
    r"^\W*(i('m| am) (sorry|unable|not able)|sorry[,. ]|i (can(no|')t|can not|won't|will not|do not have"
    r"|don't have)"
    r"|as an? (ai|language model|assistant)|i apologi[sz]e|unfortunately,? i|es tut mir leid"
    r"|i (must|have to|need to) (decline|refuse)|i('m| am) not (allowed|permitted)"
    r"|ich kann (leider |das |hier )*nicht|entschuldigung|je (suis désolé|ne peux pas)|désolée?\b|lo siento"
    r"|mi dispiace|non posso|извините|к сожалению|я не могу|抱歉|对不起|我无法|申し訳)",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"(\b(internal server error|bad gateway|service unavailable|rate limit|too many requests|api error|timed? ?out"
    r"|traceback|exception|connection (refused|reset))\b|^\W*error\b|^\W*\{\s*\"error\"|<html|<!doctype)",
    re.IGNORECASE,
)
_CANNED = re.compile(
    r"previous conversation: \d+ messages|various topics|no (conversation|messages) (was|were|to)", re.IGNORECASE
)
_INSTRUCTION = re.compile(
    r"\b(ignore|disregard|forget|override)\b.{0,40}\b(instructions?|rules?|prompts?|everything|above|previous)\b"
    r"|\byou (are|must) now\b|\bfrom now on,? you (shall|will|must|should|are)\b"
    r"|\bnew instructions?\b|</?(system|assistant|user)>|\[/?inst\]|<\|",
    re.IGNORECASE,
)
_PREFACE = re.compile(
    r"^\W*(here('s| is)[^\n:]{0,60}summary[^\n:]{0,40}:|(updated |conversation |new )?summary( \([^)\n]*\))?\s*:"
    r"|\*\*summary:?\*\*:?)\s*",
    re.IGNORECASE,
)
_TRANSCRIPT = re.compile(r"#\d+ [^:\n]{1,40}:")
_TOKEN = re.compile(r"https?://\S+|\w+(?:[-./:]\w+)*")


class Rejected(Exception):  # noqa: N818 - says what happened to the text
    """The text is not a summary; ``str()`` says why, without any of the text."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A text fit to be stored."""

    text: str
    retention: float


def orders_model(text: str) -> bool:
    """Does the text tell a model what to do? Such a sentence is never put where the model reads its rules."""
    return bool(_INSTRUCTION.search(text))


def check(
    text: str,
    *,
    source: Sequence[str],
    prompt: str,
    source_tokens: int,
    tokens: int,
    elsewhere: Iterable[str] = (),
) -> Checked:
    """The summary, cleaned; Rejected when it is none.

    ``source`` are the texts it stands for, ``elsewhere`` what of them is kept beside it (facts), ``tokens`` its own
    size, ``prompt`` the instructions it may not repeat.
    """
    clean = tidy(text)
    if not any(character.isalnum() for character in clean):
        raise Rejected("empty")
    for pattern, reason in ((_REFUSAL, "a refusal"), (_CANNED, "a canned line"), (_ERROR, "an error message")):
        if pattern.search(clean) and not _said(pattern, source):
            raise Rejected(reason)
    if orders_model(clean):
        raise Rejected("instructions instead of a summary")
    if _echoes(clean, prompt) or len(_TRANSCRIPT.findall(clean)) > 1:
        raise Rejected("an echo of the prompt")
    if source_tokens > TINY_SOURCE_TOKENS and tokens >= source_tokens:
        raise Rejected("longer than its source")
    return Checked(clean, retention(clean, source, elsewhere))


def tidy(text: str) -> str:
    """One paragraph without control characters, headings and "Here is the summary:"."""
    printable = "".join(c for c in text if c.isprintable() or c in "\n\t")
    lines = (re.sub(r"^[#>*\-\s]+", "", line).strip() for line in printable.splitlines())
    return _PREFACE.sub("", " ".join(line for line in lines if line)).replace("**", "").strip()


def shorten(text: str, limit: int, measure: Callable[[str], int]) -> str:
    """At most ``limit`` tokens, ending with a whole sentence if that keeps half of them."""
    if measure(text) <= limit:
        return text
    size = len(text)
    while size > 1 and measure(text[:size]) > limit:
        size = size * 9 // 10
    cut = text[:size]
    end = max(cut.rfind(mark) for mark in (". ", "! ", "? ", "。", "！", "？"))
    return cut[: end + 1].strip() if end * 2 > size else cut.rstrip() + "…"


def key_words(texts: Iterable[str]) -> set[str]:
    """What a summary should not lose: numbers, callsigns, capitalised words inside a sentence, addresses."""
    found: set[str] = set()
    for text in texts:
        for match in _TOKEN.finditer(text):
            word = match.group()
            if _is_key(word, text, match.start()):
                found.add(word.casefold().rstrip("/."))
    return found


def retention(summary: str, source: Iterable[str], elsewhere: Iterable[str] = ()) -> float:
    """Share of the source's key words in the summary or elsewhere; 1.0 when the source has none."""
    wanted = key_words(source)
    if not wanted:
        return 1.0
    kept = " ".join([summary, *elsewhere]).casefold()
    return sum(word in kept for word in wanted) / len(wanted)


def _is_key(word: str, text: str, start: int) -> bool:
    if word.startswith(("http://", "https://")):
        return True
    if any(character.isdigit() for character in word):
        return True
    if len(word) > 1 and word.isupper() and word.isascii():
        return True
    if not word[0].isupper() or len(word) < 3:
        return False
    before = text[:start].rstrip(" \t\"'(»«„“")
    return bool(before) and before[-1] not in ".!?…\n:"


def _said(pattern: re.Pattern[str], source: Sequence[str]) -> bool:
    """People do write "timeout" and "I'm sorry": then a summary may, too."""
    return any(pattern.search(text) for text in source)


def _echoes(text: str, prompt: str) -> bool:
    """More than half of the text's word quintuples stand in the prompt's instructions."""
    words, model = text.casefold().split(), " ".join(prompt.casefold().split())
    if len(words) < 5:
        return False
    runs = [" ".join(words[i : i + 5]) for i in range(len(words) - 4)]
    return sum(run in model for run in runs) * 2 > len(runs)
