"""The sentences in which people state facts about themselves, and the keys those facts go by."""

from __future__ import annotations

import re

from meshai.storage.facts import Kind

SINGLE = frozenset(
    {
        "name",
        "callsign",
        "location",
        "units",
        "radio",
        "language",
        "antenna",
        "occupation",
        "age",
        "birthday",
        "email",
        "phone",
        "timezone",
        "frequency",
    }
)
"""Keys with one value at a time: a newer one supersedes."""
MULTI = frozenset(
    {
        "likes",
        "dislikes",
        "interest",
        "hobby",
        "allergy",
        "pet",
        "friend",
        "child",
        "needs",
        "wants",
        "skill",
        "topic",
        "note",
    }
)
SYNONYMS = {
    "home": "location", "city": "location", "town": "location", "qth": "location", "residence": "location",
    "lives in": "location", "address": "location", "place": "location", "home town": "location",
    "call sign": "callsign", "call": "callsign", "user name": "name", "first name": "name", "nickname": "name",
    "device": "radio", "node": "radio", "hardware": "radio", "unit": "units", "unit system": "units",
    "job": "occupation", "profession": "occupation", "work": "occupation", "e-mail": "email", "mail": "email",
    "phone number": "phone", "time zone": "timezone", "freq": "frequency", "qrg": "frequency",
    "like": "likes", "love": "likes", "loves": "likes", "prefers": "likes", "hate": "dislikes", "hates": "dislikes",
    "dislike": "dislikes",
}  # fmt: skip

URL = re.compile(r"https?://[^\s<>\"')\]]+")
_END = r"(?=[.,;!?\n]|\s+(?:and|but|so|because|und|aber)\b|$)"

# (pattern, kind, key). The value is the last group; a key of "" is the group before it.
PATTERNS: tuple[tuple[re.Pattern[str], Kind, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind, key)  # type: ignore[misc]
    for pattern, kind, key in (
        (r"\bmy (?:call ?sign|call) is (?:now )?([A-Z0-9/]{3,10})\b", "fact", "callsign"),
        (r"\b(?:mein rufzeichen ist|мой позывной) ([A-Z0-9/]{3,10})\b", "fact", "callsign"),
        ((r"\b(?:my name is|call me|ich hei(?:ß|ss)e|mein name ist|меня зовут|je m['’]appelle|me llamo)"
          r" (\w[\w'’-]{1,30})"), "fact", "name"),
        ((r"\b(?:i (?:now )?live in|i(?:'ve| have)? moved to|i am from|i'm from|my (?:home|qth|location) is(?: now)?"
         r"|ich (?:wohne|lebe)(?: jetzt)? in|ich bin nach|я живу в|vivo en|j['’]habite [àa]) "
         r"((?:the |der |die )?[\w'’.-]+(?: [A-ZÄÖÜ][\w'’.-]+)*?)(?: now| gezogen)?" + _END), "fact", "location"),
        (r"\bi (?:work as|am working as) an? ([\w -]{3,40}?)" + _END, "fact", "occupation"),
        (r"\b(?:i use|i prefer|please use) (metric|imperial|celsius|fahrenheit|kilomet(?:er|re)s|miles)\b",
         "preference", "units"),
        ((r"\b(?:my|mein|meine) (?:favou?rite|lieblings)[ -]?([\w-]{3,20}) (?:is|ist)(?: now| jetzt)?"
          r" ([^.,;!?\n]{2,60})"), "preference", "favourite"),
        (r"\bi (?:really )?(?:like|love|enjoy) ([^.,;!?\n]{3,60}?)" + _END, "preference", "likes"),
        (r"\bi prefer ([^.,;!?\n]{3,60}?)" + _END, "preference", "likes"),
        (r"\bi (?:really )?(?:hate|dislike|can['’]?t stand|don['’]t like) ([^.,;!?\n]{3,60}?)" + _END,
         "preference", "dislikes"),
        (r"\bich mag (?!kein|nicht)([^.,;!?\n]{3,60}?)" + _END, "preference", "likes"),
        (r"\bi(?:'m| am) allergic to ([^.,;!?\n]{3,60}?)" + _END, "fact", "allergy"),
        (r"\bmy ([a-z][a-z -]{2,24}?) is(?: now| called)? ([^.,;!?\n]{2,60})", "fact", ""),
        (r"\b(?:we|i)(?:['’]ve| have)? decided (?:to |that |on )([^.;!?\n]{4,76})", "decision", "decided"),
        (r"\b(?:remember|merk dir|запомни)[,:]? (?:that |dass |что )?([^.;!?\n]{4,76})", "fact", "note"),
    )
)  # fmt: skip
NOT_A_NAME = frozenset(
    {
        "a",
        "an",
        "the",
        "my",
        "this",
        "that",
        "here",
        "there",
        "when",
        "if",
        "later",
        "back",
        "at",
        "on",
        "in",
        "asap",
        "tomorrow",
        "tonight",
        "please",
        "maybe",
        "crazy",
        "not",
        "it",
        "fear",
        "hope",
        "peace",
        "general",
        "case",
        "fact",
        "favour",
        "order",
    }
)
NOT_A_KEY = frozenset(
    {
        "question",
        "point",
        "problem",
        "idea",
        "guess",
        "plan",
        "answer",
        "friend",
        "battery",
        "first",
        "next",
        "last",
        "only",
    }
)
