"""Cutting an answer into packets: bytes counted in UTF-8, graphemes never split (DESIGN §3 item 5).

Everything here is a pure function of its arguments. The text between two neighbouring parts is white space only:
nothing is lost, nothing is doubled, and a part's text is an exact piece of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import regex

MIN_FILL = 0.92
"""A part ends at a sentence only if it stays this full (DESIGN §3 item 5)."""
MIN_LAST_BYTES = 25
"""A shorter last part takes what it needs from the one before."""
WORD_WASTE = 0.2
"""How much of a part may stay empty so that no word is split; a longer word is split between graphemes."""
MORE_HINT = " … send !more"
"""Ends a part after which more text waits."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Stands for a grapheme that fits no packet."""

_GRAPHEME = regex.compile(r"\X")
_URL = regex.compile(r"(?:https?://|www\.)[^\s<>\"]+")
_SENTENCE_END = regex.compile(r"[.!?…։؟।۔。！？｡][\"'”’»)\]』」）]*$|\n\s*$")
_CJK_STOP = regex.compile(r"[。！？｡][\"'”’»)\]』」）]*$")
# Scripts written without spaces: a line may break between any two of their graphemes. Emoji likewise.
_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Extended_Pictographic}\u3000-\u303F\uFF00-\uFFEF]"
)
_NO_START = regex.compile(r"[\p{Pe}\p{Pf}、。，．：；？！・…ー々〻\u3099-\u309C,.;:!?%]")
_WHITE = regex.compile(r"(?:\s(?![\p{Grapheme_Extend}\p{Mc}\u200D]))*")
_MARK = regex.compile(r"^\[(\d{1,2})(?:/(\d{1,2}))?\] ")


@dataclass(frozen=True, slots=True)
class Cut:
    """An answer in packets. ``starts`` are the parts' places in ``text``; ``rest`` is what found no room."""

    parts: tuple[str, ...]
    rest: str
    text: str = ""  # what is in the parts, without marks and hint
    starts: tuple[int, ...] = ()


def cut(
    text: str,
    *,
    max_bytes: int,
    max_parts: int,
    first_part: int = 1,
    prefix: str = "",
    more_hint: str = MORE_HINT,
    more_follows: bool = False,
    total_known: bool = True,
) -> Cut:
    """Cut ``text`` into at most ``max_parts`` parts of at most ``max_bytes`` UTF-8 bytes, marks and hint included.

    ``first_part``: parts before it were sent already, the marks count on from there. ``prefix`` stands before the
    text in the first part. ``more_follows``: text beyond ``text`` exists, so the last part ends with the hint.
    ``total_known`` False: the marks say ``[2]``.
    """
    text = fit_graphemes(text.strip(), max_bytes - mark_bytes(9) - size(more_hint) - size(prefix))
    if not text:
        return Cut((), "")
    whole = prefix + text + (more_hint if more_follows else "")
    if first_part == 1 and total_known and size(whole) <= max_bytes:
        return Cut((whole,), "", text, (0,))
    spans, end = _spans(text, max_bytes, max_parts, first_part, prefix, more_hint, more_follows)
    rest = text[end:].strip()
    total = first_part - 1 + len(spans) if total_known else 0
    parts = [
        f"{mark(first_part + index, total)}{prefix if index == 0 else ''}{text[start:stop]}"
        for index, (start, stop) in enumerate(spans)
    ]
    if rest or more_follows:
        parts[-1] += more_hint
    return Cut(tuple(parts), rest, text[:end].rstrip(), tuple(start for start, _ in spans))


def take(text: str, room: int, *, start: int = 0, fill: int | None = None) -> int:
    """Where the next part ends: the best place at most ``room`` bytes after ``start``; at least one grapheme.

    ``fill``: the least bytes a part must keep to end at a sentence, default 92 % of ``room``.
    """
    if size(text[start : start + room + 1]) <= room and start + room + 1 > len(text):
        return len(text)
    least = max(int(room * MIN_FILL) if fill is None else fill, 1)
    bounds = _boundaries(text, start, room)
    limit, _ = bounds[-1]
    if limit == len(text):
        return limit
    allowed = min(least, int(room * (1 - WORD_WASTE)))
    url = _url_over(text, start, limit)
    if url is not None and size(text[url[0] : url[1]]) <= room and url[0] > start:
        return _trimmed(text, start, url[0])
    breaks = [(place, count) for place, count in bounds if _may_break(text, start, place)]
    for place, count in reversed(breaks):
        if count >= least and _ends_sentence(text, start, place):
            return place
    for place, count in reversed(breaks):
        if count >= allowed:
            return place
    return limit


def whole_sentences(text: str, *, start: int = 0) -> str:
    """The text up to its last whole sentence after ``start``; all of it when there is none there."""
    for place in range(len(text), start, -1):
        if (place < len(text) or _SENTENCE_END.search(text[-8:])) and _ends_sentence(text, start, place):
            return text[:place].rstrip()
    return text


def mark(part: int, total: int) -> str:
    """What stands before a part: nothing for an only one, ``[2/3]``, or ``[2]`` while the total is unknown."""
    if total == 1:
        return ""
    return f"[{part}/{total}] " if total else f"[{part}] "


def mark_bytes(total: int) -> int:
    """The most a mark of an answer with this many parts takes."""
    return len(mark(total, total)) if total > 1 else 0


def unmark(content: str) -> str:
    """A packet's text without its mark."""
    return _MARK.sub("", content)


def size(text: str) -> int:
    """Bytes in UTF-8; a lone surrogate counts like its replacement."""
    return len(text.encode("utf-8", "replace"))


def fit_graphemes(text: str, room: int) -> str:
    """The text with each grapheme larger than ``room`` bytes replaced by one visible sign."""
    if len(text) * 4 <= room or (text.isascii() and "\r" not in text):
        return text
    return "".join(grapheme if size(grapheme) <= room else REPLACEMENT for grapheme in _GRAPHEME.findall(text))


def _spans(
    text: str, max_bytes: int, max_parts: int, first_part: int, prefix: str, hint: str, more_follows: bool
) -> tuple[list[tuple[int, int]], int]:
    """The parts' places, and where the text that found room ends."""
    last = first_part - 1 + max_parts
    room = max_bytes - mark_bytes(max(last, 2)) if last > 1 else max_bytes
    spans: list[tuple[int, int]] = []
    place = 0
    while place < len(text):
        space = room - (size(prefix) if place == 0 else 0)
        ends = size(text[place:]) <= space - (size(hint) if more_follows else 0)
        is_last = len(spans) == max_parts - 1
        fill = int(max_bytes * MIN_FILL) - (max_bytes - space)
        if is_last and not ends:
            space -= size(hint)
            fill -= size(hint)
        end = len(text) if ends else take(text, space, start=place, fill=fill)
        spans.append((place, place + len(text[place:end].rstrip())))
        place = end + _white(text, end)
        if is_last:
            break
    else:
        _feed_last(text, spans, room, max_bytes - room)
    return spans, place


def _feed_last(text: str, spans: list[tuple[int, int]], room: int, overhead: int) -> None:
    """Let a last part that is too short take words from the one before."""
    if len(spans) < 2:
        return
    (start, stop), (begin, end) = spans[-2:]
    if size(text[begin:end]) + overhead >= MIN_LAST_BYTES:
        return
    graphemes = [start + match.start() for match in _GRAPHEME.finditer(text[start:stop])][1:]
    enough = [place for place in graphemes if size(text[place:end].lstrip()) + overhead >= MIN_LAST_BYTES]
    words = [place for place in enough if _may_break(text, start, place) and _url_over(text, start, place) is None]
    if not enough:
        return
    place = words[-1] if words and size(text[words[-1] : end]) <= min(room, 4 * MIN_LAST_BYTES) else enough[-1]
    spans[-2] = (start, start + len(text[start:place].rstrip()))
    spans[-1] = (place + _white(text, place), end)


def _boundaries(text: str, start: int, room: int) -> list[tuple[int, int]]:
    """Grapheme boundaries after ``start`` with the bytes up to each; at least one, even if it is over ``room``."""
    bounds: list[tuple[int, int]] = []
    used = 0
    for match in _graphemes(text, start, room):
        used += size(match)
        if used > room and bounds:
            break
        start += len(match)
        bounds.append((start, used))
    return bounds


def _graphemes(text: str, start: int, room: int) -> Iterator[str]:
    for match in _GRAPHEME.finditer(text, start, min(len(text), start + room + 64)):
        yield match.group()


def _may_break(text: str, start: int, place: int) -> bool:
    """Whether a line may break here: beside white space, or in a script written without it; never in a URL."""
    if place >= len(text):
        return True
    before, after = text[place - 1], text[place]
    if before.isspace() or after.isspace():
        return True
    if not (_UNSPACED.match(before) or _UNSPACED.match(after)) or _NO_START.match(after):
        return False
    return _url_over(text, start, place) is None


def _url_over(text: str, start: int, place: int) -> tuple[int, int] | None:
    """The URL that a break at ``place`` would cut."""
    begin = place
    while begin > start and not text[begin - 1].isspace():
        begin -= 1
    match = _URL.search(text, begin)
    while match and match.start() < place:
        if match.end() > place:
            return match.span()
        match = _URL.search(text, match.end())
    return None


def _ends_sentence(text: str, start: int, place: int) -> bool:
    piece = text[max(start, place - 8) : place]
    if place < len(text) and text[place] == "\n":
        return True
    if place == len(text) or text[place].isspace() or (piece and piece[-1].isspace()):
        return _SENTENCE_END.search(piece.rstrip(" ")) is not None
    return _CJK_STOP.search(piece) is not None


def _trimmed(text: str, start: int, place: int) -> int:
    return start + len(text[start:place].rstrip())


def _white(text: str, place: int) -> int:
    """How much white space follows; a space that carries a combining sign is none."""
    match = _WHITE.match(text, place)
    return len(match.group()) if match else 0
