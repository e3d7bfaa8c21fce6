"""Writes core/layers.svg: the rooms of the import plan in tiers, with the two waists.

The table is tests/support/layers.py.

`python -m tests.tools.draw_layers` writes the file; a test fails where it is stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from tests.support.layers import ARROWS, TIERS, WAISTS

FILE = Path(__file__).parents[2] / "core" / "layers.svg"
WIDTH, BOX_HEIGHT, TIER_HEIGHT, GAP, LEFT, TOP = 940, 34, 84, 14, 214, 40
FONT = "font-family='system-ui, sans-serif'"
HIDDEN = {"__main__", "__init__", "data", "errors", "version"}  # trivial, or imported everywhere
Box = tuple[float, float, float]  # x, y, width


def rooms_of(tier: str) -> list[str]:
    return [room for room in TIERS[tier] if room not in HIDDEN]


def label_of(room: str) -> str:
    return room.removeprefix("backends/")


def boxes() -> dict[str, Box]:
    """The place of each room: tiers from the top, rooms spread over the width."""
    places: dict[str, Box] = {}
    for i, tier in enumerate(TIERS):
        rooms = rooms_of(tier)
        width = (WIDTH - LEFT - GAP * (len(rooms) - 1) - 20) / len(rooms)
        width = min(width, 150)
        start = LEFT + (WIDTH - LEFT - 20 - len(rooms) * width - GAP * (len(rooms) - 1)) / 2
        for j, room in enumerate(rooms):
            places[room] = (start + j * (width + GAP), TOP + i * TIER_HEIGHT, width)
    return places


def drawn_arrows() -> list[tuple[str, str]]:
    """The arrows between neighbouring tiers; others would cross the picture."""
    tier_of = {room: i for i, tier in enumerate(TIERS) for room in rooms_of(tier)}
    pairs = [(a, b) for a, below in ARROWS.items() for b in sorted(below) if {a, b} <= tier_of.keys()]
    return [(a, b) for a, b in pairs if abs(tier_of[a] - tier_of[b]) == 1]


def arrow_line(a: Box, b: Box) -> str:
    """A curve between two boxes, from the lower edge of one to the upper edge of the other."""
    (ax, ay, aw), (bx, by, bw) = a, b
    y1, y2 = (ay + BOX_HEIGHT, by) if ay < by else (ay, by + BOX_HEIGHT)
    x1, x2 = ax + aw / 2, bx + bw / 2
    middle = (y1 + y2) / 2
    curve = f"M{x1:.0f} {y1:.0f} C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
    return f"<path d='{curve}' class='arrow'/>"


def box_lines(places: dict[str, Box]) -> Iterator[str]:
    for room, (x, y, width) in places.items():
        yield f"<rect x='{x:.0f}' y='{y:.0f}' width='{width:.0f}' height='{BOX_HEIGHT}' rx='6' class='room'/>"
        yield (
            f"<text x='{x + width / 2:.0f}' y='{y + 22:.0f}' text-anchor='middle' class='name'>"
            f"{escape(label_of(room))}</text>"
        )


def tier_lines() -> Iterator[str]:
    for i, tier in enumerate(TIERS):
        y = TOP + i * TIER_HEIGHT
        yield f"<text x='20' y='{y + 22}' class='tier'>{escape(tier)}</text>"
        if tier in WAISTS:
            line = y + BOX_HEIGHT + (TIER_HEIGHT - BOX_HEIGHT) / 2
            yield f"<line x1='20' y1='{line}' x2='{WIDTH - 20}' y2='{line}' class='waist'/>"
            yield f"<text x='20' y='{line - 6}' class='waistname'>{escape(WAISTS[tier])}</text>"


def svg() -> str:
    """The whole picture."""
    places, height = boxes(), TOP + len(TIERS) * TIER_HEIGHT
    style = (
        ".room{fill:#fff;stroke:#555}.name{font-size:14px;fill:#222}.tier{font-size:12px;fill:#666}"
        ".arrow{fill:none;stroke:#9ab;stroke-width:1.2;marker-end:url(#head)}"
        ".waist{stroke:#c60;stroke-width:2;stroke-dasharray:7 5}.waistname{font-size:12px;fill:#c60}"
    )
    size = "viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7'"
    head = f"<marker id='head' {size} orient='auto'>"
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' {FONT}>",
        f"<style>{style}</style>",
        f"<defs>{head}<path d='M0 0 L8 4 L0 8 z' fill='#9ab'/></marker></defs>",
        f"<rect width='{WIDTH}' height='{height}' fill='#fafafa'/>",
        *tier_lines(),
        *(arrow_line(places[a], places[b]) for a, b in drawn_arrows()),
        *box_lines(places),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(svg(), encoding="utf-8")
