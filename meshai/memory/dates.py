"""Dates a question speaks of: "last May", "yesterday", "8 May 2023", "5月8日". Days are UTC, as in the index."""

from __future__ import annotations

import calendar
import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib import resources

PLAUSIBLE_SINCE = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
"""A clock before this has not been set: "yesterday" means nothing then (docs/memory.md §2.8 item 8)."""

MAX_DAYS_SPELLED = 14  # a longer span is looked for by its months
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Mention:
    """A date as far as it is known; ``first`` to ``last`` when it is a span of days."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    first: date | None = None
    last: date | None = None

    def fits(self, when: date, span_days: float) -> float:
        """How much a message of this day fits: the logarithm of how many days it stands out from."""
        if self.first is not None and self.last is not None:
            days = (self.last - self.first).days + 1
            return math.log(max(span_days / days, 1.0) + 1.0) if self.first <= when <= self.last else 0.0
        if self.month is not None and when.month != self.month:
            return 0.0
        score = math.log(12.0) if self.month is not None else 0.0
        if self.day is not None and when.day == self.day:
            score += math.log(30.0)
        if self.year is not None and when.year == self.year:
            score += math.log(max(span_days / 365.0, 1.0) + 0.3)
        return score

    def matches(self) -> list[str]:
        """FTS5 phrases of the index's date column that hold the days meant."""
        if self.first is not None and self.last is not None:
            days = (self.last - self.first).days + 1
            spelled = (self.first + timedelta(days=n) for n in range(days))
            form = '"%Y m%m d%d"' if days <= MAX_DAYS_SPELLED else '"%Y m%m"' if days <= 366 else '"%Y"'
            return list(dict.fromkeys(day.strftime(form) for day in spelled))
        parts = [f"{self.year:04d}"] if self.year is not None else []
        if self.month is not None:
            parts.append(f"m{self.month:02d}")
            if self.day is not None:
                parts.append(f"d{self.day:02d}")
        return [f'"{" ".join(parts)}"'] if parts else []


def mentions(text: str, now: float) -> list[Mention]:
    """Every date in the text; those relative to today only with a clock that has been set."""
    lowered = text.lower()
    found = _numeric(lowered) or _named_months(text, now)
    if now >= PLAUSIBLE_SINCE:
        found += _relative(lowered, datetime.fromtimestamp(now, UTC).date())
    if not found:
        found = [Mention(year=int(year)) for year in re.findall(r"(?<![\d.,])((?:19|20)\d\d)(?![\d.,]\d|\d)", lowered)]
    return list(dict.fromkeys(found))


def day_of(timestamp: float) -> date | None:
    """The calendar day; None for times no calendar has."""
    try:
        return datetime.fromtimestamp(timestamp, UTC).date()
    except (OverflowError, OSError, ValueError):
        return None


@cache
def _words(kind: str) -> dict[str, int]:
    """Month and day words of many languages: "may" -> 5, "yesterday" -> -1."""
    result: dict[str, int] = {}
    text = resources.files(__package__).joinpath("lists/dates.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        group, _, number = name.partition(" ")
        if group == kind:
            result.update(dict.fromkeys(rest.split(), int(number)))
    return result


def _numeric(text: str) -> list[Mention]:
    found = [
        Mention(int(y), int(m), int(d))
        for y, m, d in re.findall(r"\b((?:19|20)\d\d)[-/.年](\d{1,2})[-/.月](\d{1,2})", text)
    ]
    found += [
        Mention(int(y), int(m), int(d)) for d, m, y in re.findall(r"\b(\d{1,2})\.(\d{1,2})\.((?:19|20)\d\d)\b", text)
    ]
    if not found:
        pattern = r"(?:((?:19|20)\d\d)年)?(\d{1,2})[月월](?:\s*(\d{1,2})[日号號일])?"
        found = [Mention(int(y) if y else None, int(m), int(d) if d else None) for y, m, d in re.findall(pattern, text)]
    return [mention for mention in found if 1 <= (mention.month or 0) <= 12 and (mention.day or 1) <= 31]


def _named_months(text: str, now: float) -> list[Mention]:
    months = _words("month")
    words = list(re.finditer(r"[^\W_]+", text))
    result = []
    for at, match in enumerate(words):
        month = months.get(match.group().lower())
        if month is None or (match.group().lower() in _AMBIGUOUS and not _is_month(words, at)):
            continue
        near = [word.group().lower() for word in words[max(at - 2, 0) : at + 4] if word is not match]
        days = [int(n[1]) for word in near if (n := re.fullmatch(r"(\d{1,2})(?:st|nd|rd|th)?", word))]
        years = [int(word) for word in near if re.fullmatch(r"(?:19|20)\d\d", word)]
        before = words[at - 1].group().lower() if at else ""
        if before in _LAST and not years and now >= PLAUSIBLE_SINCE:
            today = datetime.fromtimestamp(now, UTC).date()
            years = [today.year if month < today.month else today.year - 1]
        day = days[0] if days and 1 <= days[0] <= 31 else None
        result.append(Mention(years[0] if years else None, month, day))
    return result


_AMBIGUOUS = frozenset({"may", "march", "mars", "mai", "mar", "set", "out", "mei"})
_LAST = frozenset(
    {"last", "letzten", "letzter", "vorigen", "dernier", "pasado", "scorso", "vorige", "прошлом", "прошлого"}
)
_BEFORE_MONTH = frozenset(
    {"in", "on", "last", "next", "of", "since", "until", "during", "this", "by", "early", "late", "mid"}
    | {"im", "am", "seit", "bis", "letzten", "en", "au", "le", "du", "el", "de", "di", "il", "em", "w"}
)


def _is_month(words: list[re.Match[str]], at: int) -> bool:
    """Is "may" the month here? It stands after "in", or beside a number."""
    before = words[at - 1].group().lower() if at else ""
    after = words[at + 1].group().lower() if at + 1 < len(words) else ""
    return before in _BEFORE_MONTH or before[:1].isdigit() or after[:1].isdigit()


def _relative(text: str, today: date) -> list[Mention]:
    found = []
    days = _words("day")
    spaced = set(re.findall(r"[^\W_]+(?:-[^\W_]+)?", text))
    for word, offset in days.items():
        if word in spaced or _has_letters(word, text):
            found.append(_span(today + timedelta(days=offset), 1))
    for count, unit in re.findall(
        r"\b(\d{1,3}|a|an|one|two|three|four|five|six)\s+(day|week|month|year)s?\s+ago\b", text
    ):
        number = int(count) if count.isdigit() else _COUNTS[count]
        found.append(_ago(today, number, unit))
    for which, unit in re.findall(r"\b(last|this|past)\s+(week|month|year)\b", text):
        found.append(_ago(today, 0 if which == "this" else 1, unit, whole=True))
    weekdays = "|".join(_words("weekday"))
    for name in re.findall(rf"\b(?:last|on|am|letzten|le|el|в|во)\s+({weekdays})\b", text):
        back = (today.weekday() - _words("weekday")[name] - 1) % 7 + 1
        found.append(_span(today - timedelta(days=back), 1))
    return found


_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def _has_letters(word: str, text: str) -> bool:
    """Day words of scripts without spaces stand anywhere."""
    return ("\u3040" <= word[0] <= "\u9fff" or "\uac00" <= word[0] <= "\ud7a3") and word in text


def _span(first: date, days: int) -> Mention:
    return Mention(first=first, last=first + timedelta(days=days - 1))


def _ago(today: date, number: int, unit: str, *, whole: bool = False) -> Mention:
    """A span around "N weeks ago"; with ``whole``, the calendar week, month or year."""
    if unit == "day":
        return _span(today - timedelta(days=number), 1)
    if unit == "week":
        if whole:
            return _span(today - timedelta(days=today.weekday() + 7 * number), 7)
        return _span(today - timedelta(days=7 * number + 3), 7)
    if unit == "month":
        index = today.year * 12 + today.month - 1 - number
        year, month = max(index // 12, 1), index % 12 + 1
        return _span(date(year, month, 1), calendar.monthrange(year, month)[1])
    year = max(today.year - number, 1)
    return Mention(first=date(year, 1, 1), last=date(year, 12, 31))
