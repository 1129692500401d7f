"""Every id and section that code, tests and papers cite resolves to a line in docs/."""

from __future__ import annotations

import re

import pytest
from support.papers import Citation, Papers, cited_ids, cited_sections, read_papers


@pytest.fixture(scope="module")
def papers() -> Papers:
    return read_papers()


def expect_all(citations: list[Citation], resolves) -> None:
    dangling = sorted({str(citation) for citation in citations if not resolves(citation)})
    if dangling:
        pytest.fail("not in docs/:\n" + "\n".join(dangling), pytrace=False)


def test_every_cited_id_has_its_line(papers):
    citations = cited_ids()
    assert len({citation.what for citation in citations if not citation.where.endswith(".md")}) > 20
    expect_all(citations, lambda citation: citation.what in papers.ids)


def test_every_cited_section_exists(papers):
    everywhere = set().union(*papers.sections.values())

    def resolves(citation: Citation) -> bool:
        if "§" in citation.paper:
            return names_rule(papers, citation)
        if citation.paper in ("", "README.md"):
            return citation.what in everywhere
        return citation.what in papers.sections.get(citation.paper, set())

    citations = cited_sections()
    assert sum(citation.paper == "protocol.md" and citation.where.endswith(".py") for citation in citations) > 20
    expect_all(citations, resolves)


def names_rule(papers: Papers, citation: Citation) -> bool:
    """``DESIGN §3 Times`` names a bold paragraph of that section, ``DESIGN §3 item 5`` an entry of its list."""
    paper, _, section = citation.paper.partition(" §")
    body = re.search(rf"^## {section[0]}\. .*?(?=^## |\Z)", papers.text[paper], re.MULTILINE | re.DOTALL)
    assert body is not None, citation
    kind, _, number = citation.what.partition(" ")
    wanted = rf"^{number}\. " if kind == "item" else rf"\*\*{kind}\b"
    return re.search(wanted, body[0], re.MULTILINE) is not None


@pytest.mark.parametrize("name", [f"M{n}" for n in range(1, 17)] + [f"A{n}" for n in range(1, 18)])
def test_field_paper_defines_each_failure_once(papers, name):
    assert len(re.findall(rf"^- \*\*{name}\*\*", papers.text["field.md"], re.MULTILINE)) == 1


@pytest.mark.parametrize(
    ("text", "missing"),
    [("as M99 says", "M99"), ("see S3-77", "S3-77"), ("I42 holds", "I42")],
)
def test_unknown_id_would_be_found(papers, text, missing):
    from support import papers as module

    assert [match[1] for match in module._CITED_ID.finditer(text)] == [missing]
    assert missing not in papers.ids
