"""docs/configuration.md is the model's own text."""

from pathlib import Path

from meshai.config.reference import markdown

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_page_is_in_step_with_the_model():
    assert PAGE.read_text(encoding="utf-8") == markdown()
