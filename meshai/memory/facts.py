"""What a message states about its author: patterns, and lines of a summariser checked against the messages. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import get_args

from meshai.memory.patterns import MULTI, NOT_A_KEY, NOT_A_NAME, PATTERNS, SINGLE, SYNONYMS, URL
from meshai.memory.validate import orders_model
from meshai.storage.facts import Fact, Kind, NewFact, Origin
from meshai.storage.messages import StoredMessage

VALUE_BYTES = 80
"""A fact stands in the system message: short, one line (docs/memory.md §2.8)."""
KEY_CHARS = 30
QUOTE_CHARS = 160
MOST_LINES = 8
SUPPORT = 0.6
"""Share of a value's words that must stand in the message it is said to be from."""

_KINDS = frozenset(get_args(Kind))
_DICT_KINDS = frozenset({"preference", "structure", "custom"})
_LINE = re.compile(r"^[\s*\-•`]*(\w+)\s*\|\s*([^|\n]*)\|\s*([^|\n]+)\|\s*#?\s*(\d+)[\s`]*$")
_LOOKS_LIKE_LINE = re.compile(r"^[\s*\-•`]*(preference|decision|fact|url|entity|structure|custom)\s*\|", re.IGNORECASE)
_WORD = re.compile(r"\w+(?:[-'’./:@]\w+)*")
_MARKUP = re.compile(r"[#*_`<>\[\]{}|\\~^=]+|[\x00-\x1f\x7f]+")
_FORGED = re.compile(
    r"^\W*(system|assistant|user|developer|facts?|earlier|rules?|instructions?)\b[^\w]*[:\]]", re.IGNORECASE
)


def stated(row: StoredMessage, *, subject: str = "") -> list[NewFact]:
    """The facts a user's message states, by pattern; under a millisecond (docs/memory.md §2.2)."""
    if row.role != "user" or orders_model(row.content):
        return []
    found: dict[str, NewFact] = {}
    for url in URL.findall(row.content)[:4]:
        _keep(found, make("url", "", url.rstrip(".,;"), row, "regex", subject=subject))
    claimed: list[tuple[int, int]] = []
    for pattern, kind, fixed in PATTERNS:
        for match in pattern.finditer(row.content):
            value_at = match.span(match.lastindex or 0)
            if row.content[match.end() :].lstrip().startswith("?") or _overlaps(value_at, claimed):
                continue
            key = _key_of(match, fixed)
            if key in ("name", "location") and match.group(match.lastindex or 0).split()[0].casefold() in NOT_A_NAME:
                continue
            fact = make(kind, key, match.group(match.lastindex or 0), row, "regex", subject=subject) if key else None
            if fact is not None:
                claimed.append(value_at)
                _keep(found, fact)
    return list(found.values())


def asked_for(text: str, row: StoredMessage, *, subject: str = "") -> NewFact | None:
    """The fact behind ``!remember text``: pinned, with the key a pattern finds; None when nothing is left of it."""
    clean = clean_value(text)
    if clean is None:
        return None
    for pattern, kind, fixed in PATTERNS[:9]:
        match = pattern.search(text)
        if match and (key := _key_of(match, fixed)) in SINGLE:
            fact = make(kind, key, match.group(match.lastindex or 0), row, "user", subject=subject, pinned=True)
            if fact is not None:
                return fact
    return make("custom", "", clean, row, "user", subject=subject, pinned=True)


def split_answer(text: str) -> tuple[str, list[str]]:
    """A summariser's answer as summary and fact lines; an answer without lines is a summary (§2)."""
    prose: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        (lines if _LOOKS_LIKE_LINE.match(line) or _LINE.match(line) else prose).append(line)
    return "\n".join(prose).strip(), lines


def from_lines(lines: Iterable[str], rows: Sequence[StoredMessage], *, named: bool = False) -> list[NewFact]:
    """The lines that a message bears out; the rest was invented (docs/memory.md §2.5)."""
    by_seq = {row.seq: row for row in rows}
    found: dict[str, NewFact] = {}
    for line in lines:
        match = _LINE.match(line)
        if match is None or len(found) >= MOST_LINES:
            continue
        kind, key, value, seq = match.group(1).lower(), match.group(2), match.group(3), int(match.group(4))
        row = by_seq.get(seq)
        if row is None or kind not in _KINDS or not _may_cite(kind, row) or not supported(value, row.content):
            continue
        fact = make(kind, key, value, row, "llm", subject=row.sender if named else "")  # type: ignore[arg-type]
        if fact is not None:
            _keep(found, fact)
    return list(found.values())


def supported(value: str, text: str) -> bool:
    """Do at least 60 % of the value's words stand in the message?"""
    words = [word.casefold() for word in _WORD.findall(value) if len(word) > 2 or word.isdigit()]
    if not words:
        return value.strip().casefold() in text.casefold() and bool(value.strip())
    source = text.casefold()
    return sum(word in source for word in words) >= SUPPORT * len(words)


def make(
    kind: Kind, key: str, value: str, row: StoredMessage, origin: Origin, *, subject: str = "", pinned: bool = False
) -> NewFact | None:
    """A fact with a clean key and value; None when nothing usable is left."""
    clean, name = clean_value(value), clean_key(key)
    if clean is None:
        return None
    single = bool(name) and (
        name in SINGLE
        or (kind in _DICT_KINDS and name not in MULTI)
        or (origin != "llm" and kind == "fact" and name not in MULTI)
    )
    text = f"{subject}|{name if single or kind != 'url' else ''}|{clean.casefold()}"
    return NewFact(
        kind=kind,
        key=name,
        value=clean,
        hash=hashlib.sha256(text.encode()).hexdigest()[:16],
        source_msg_id=row.id,
        origin=origin,
        said_at=row.created_at,
        quote=" ".join(row.content.split())[:QUOTE_CHARS],
        subject=subject,
        pinned=pinned,
        single=single,
    )


def clean_value(value: str) -> str | None:
    """One line of plain text of at most 80 bytes; None for what is empty, forged or an instruction."""
    if orders_model(value) or _FORGED.match(value):
        return None
    is_address = value.strip().startswith(("http://", "https://"))
    plain = " ".join((value if is_address else _MARKUP.sub(" ", value)).split()).strip(" \"'.,;:")
    if is_address and len(plain.encode()) > 2 * VALUE_BYTES:
        return None
    while not is_address and len(plain.encode("utf-8", "replace")) > VALUE_BYTES:
        plain = plain.rpartition(" ")[0] or plain[:-1]
    return plain if any(character.isalnum() for character in plain) else None


def clean_key(key: str) -> str:
    """A key in its one spelling: ``QTH`` and ``home`` are ``location``."""
    plain = " ".join(_MARKUP.sub(" ", key.replace("_", " ")).split()).casefold().strip(" :.")[:KEY_CHARS]
    if orders_model(plain) or _FORGED.match(plain + ":"):
        return ""
    return SYNONYMS.get(plain, plain)


def line_of(fact: Fact, names: dict[str, str] | None = None) -> str:
    """How a fact stands in a prompt: ``location: Berlin``."""
    text = f"{fact.key}: {fact.value}" if fact.key and fact.key != "note" else fact.value
    if fact.subject:
        text = f"{(names or {}).get(fact.subject, fact.subject)}, {text}"
    return text


def touched(facts: Iterable[Fact], texts: Iterable[str]) -> list[int]:
    """The facts whose words occur in the texts: they were of use."""
    spoken = {word.casefold() for text in texts for word in _WORD.findall(text)}
    return [
        fact.id
        for fact in facts
        if spoken.intersection(w.casefold() for w in _WORD.findall(f"{fact.key} {fact.value}") if len(w) > 3)
    ]


_FORMERLY = re.compile(
    r"\b(used to|before|previously|formerly|earlier|in the past|back then|old|früher|damals|vorher|раньше|прежде"
    r"|avant|antes)\b|以前|之前|前は",
    re.IGNORECASE,
)


def asks_for_the_past(question: str) -> bool:
    """Only such a question is told what held before (docs/memory.md §2.5)."""
    return bool(_FORMERLY.search(question))


def mark_outdated(text: str, changes: Iterable[tuple[Fact, Fact]]) -> str:
    """A summary's text with ``(formerly)`` after values that do not hold any more."""
    for old, new in changes:
        if len(old.value) < 3 or old.value.casefold() == new.value.casefold():
            continue
        pattern = re.compile(rf"(?<!\w){re.escape(old.value)}(?!\w)(?! \(formerly\))", re.IGNORECASE)
        text = pattern.sub(lambda match: f"{match.group()} (formerly)", text)
    return text


def _key_of(match: re.Match[str], fixed: str) -> str:
    if fixed == "favourite":
        return f"favourite {match.group(1).casefold()}"
    if fixed:
        return fixed
    key = clean_key(match.group(1))
    return "" if not key or key.split()[-1] in NOT_A_KEY or key.startswith("favo") else key


def _may_cite(kind: str, row: StoredMessage) -> bool:
    return row.role == "user" or kind == "decision"


def _overlaps(span: tuple[int, int], claimed: Sequence[tuple[int, int]]) -> bool:
    return any(span[0] < end and start < span[1] for start, end in claimed)


def _keep(found: dict[str, NewFact], fact: NewFact | None) -> None:
    if fact is not None:
        found.setdefault(fact.hash, fact)
