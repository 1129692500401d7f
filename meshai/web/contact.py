"""The bot's own contact on the page: the link, and its QR code as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from markupsafe import Markup

from meshai.radio.contact import contact_url
from meshai.radio.link import NodeInfo
from meshai.setup.qr import matrix


@dataclass(frozen=True, slots=True)
class Contact:
    """What a phone opens or scans."""

    url: str
    svg: Markup
    has_key: bool


@lru_cache(maxsize=2)
def contact(node: NodeInfo) -> Contact:
    """Of the own node; drawn once, because the overview is asked for at every change."""
    url = contact_url(node)
    return Contact(url, _svg(matrix(url)), bool(node.public_key))


def _svg(rows: Sequence[Sequence[bool]]) -> Markup:
    """One unit a module, black on white also on a dark page: scanners want it so."""
    size = len(rows)
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="qr" viewBox="0 0 {size} {size}" shape-rendering="crispEdges" role="img" '
        f'aria-label="QR code of the link"><rect class="light" width="{size}" height="{size}"/>'
        f'<path class="dark" d="{"".join(_runs(rows))}"/></svg>'
    )


def _runs(rows: Sequence[Sequence[bool]]) -> Iterator[str]:
    """Dark modules side by side as one rectangle."""
    for y, row in enumerate(rows):
        x = 0
        for is_dark, run in groupby(row):
            width = len(list(run))
            if is_dark:
                yield f"M{x} {y}h{width}v1h-{width}z"
            x += width
