"""The beam as a tree: a column for each step, its candidates from the likeliest down."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.patches import FancyBboxPatch

from mt.inspection.drawing import (
    ACCENT,
    EDGE,
    HERE,
    LINE,
    QUIET,
    SECOND,
    TEXT,
    WIDTH,
    number,
    picture,
)

COLUMN, ROW = 1.06, 0.42  # inches of a candidate with its gap
BOX = (0.89, 0.34)
LONG_NUMBERS = 11  # characters that fit in a box
EDGES = {"won": (ACCENT, 2.4), "finished": (SECOND, 1.0), "alive": (EDGE, 1.0)}
PRUNED = (LINE, 0.8)
KEY = (
    ("won", "on the way to the best"), ("alive", "alive"),
    ("finished", "✓ finished: log P→score"), ("pruned", "✕ pruned"),
)  # fmt: skip


def draw_tree(report: dict[str, Any], path: Path) -> None:
    """Each box is a candidate: its piece, and log P of all pieces so far."""
    nodes, [best, *_] = report["tree"]["nodes"], report["tree"]["n_best"]
    won = _path(nodes, best)
    columns: dict[int, list[dict[str, Any]]] = {}
    for node in nodes:
        columns.setdefault(node["step"], []).append(node)
    places: dict[int, tuple[float, float]] = {}
    for step, column in columns.items():
        column.sort(key=lambda node: -node["total"])
        places |= {node["id"]: (step * COLUMN, i * ROW) for i, node in enumerate(column)}
    width = len(columns) * COLUMN - (COLUMN - BOX[0])
    height = max(map(len, columns.values())) * ROW
    with picture(path, height + 0.75, max(WIDTH, width + 0.2)) as figure:
        axes = figure.subplots()
        axes.set(xlim=(-0.05, width + 0.05), ylim=(height, -0.72), aspect="equal")
        axes.axis("off")
        x = 0.0
        for state, text in KEY:
            _box(axes, (x, -0.6), (0.22, 0.18), state)
            axes.text(x + 0.3, -0.51, text, va="center")
            x += 0.48 + 0.072 * len(text)
        for node in sorted(nodes, key=lambda node: node["id"] in won):
            if node["parent"] is not None:
                _edge(axes, places[node["parent"]], places[node["id"]], _state(node, won))
        for node in nodes:
            _draw_node(axes, places[node["id"]], node, _state(node, won))


def _path(nodes: list[dict[str, Any]], last: int) -> set[int]:
    """The ids from a node up to the root."""
    ids, here = set(), last
    while here is not None:
        ids.add(here)
        here = nodes[here]["parent"]
    return ids


def _state(node: dict[str, Any], won: set[int]) -> str:
    return "won" if node["id"] in won else str(node["state"])


def _edge(axes: Any, start: tuple[float, float], end: tuple[float, float], state: str) -> None:
    x = np.linspace(0, 1, 30)
    (left, above), (right, below) = start, end
    left += BOX[0]
    colour, width = EDGES.get(state, PRUNED)
    y = above + (below - above) * (3 * x**2 - 2 * x**3) + BOX[1] / 2
    axes.plot(left + (right - left) * x, y, color=colour, linewidth=width, zorder=1)


def _box(axes: Any, corner: tuple[float, float], size: tuple[float, float], state: str) -> None:
    colour, width = EDGES.get(state, (EDGE, 0.8))
    axes.add_patch(
        FancyBboxPatch(
            corner,
            *size,
            boxstyle=f"round,pad=0,rounding_size={0.25 * size[1]}",
            facecolor=HERE if state == "won" else "white",
            edgecolor=colour,
            linewidth=min(width, 1.5),
            linestyle="--" if state == "pruned" else "-",
            zorder=2,
        )
    )


def _draw_node(axes: Any, corner: tuple[float, float], node: dict[str, Any], state: str) -> None:
    _box(axes, corner, BOX, state)
    sign = {"pruned": "✕ ", "finished": "✓ "}.get(node["state"], "")
    digits = 2 if node["total"] > -100 else 1
    text = number(node["total"], digits)
    if node["score"] is not None:
        text += f"→{number(node['score'], digits)}"
    piece = node["piece"] if len(node["piece"]) <= 11 else f"{node['piece'][:10]}…"
    x, y = corner[0] + BOX[0] / 2, corner[1]
    style = {"ha": "center", "va": "center", "zorder": 3}
    axes.text(x, y + 0.1, sign + piece, fontsize=8.5, color=QUIET if state == "pruned" else TEXT,
              fontweight="bold" if state == "won" else "normal", **style)  # fmt: skip
    size = 8.5 if len(text) <= LONG_NUMBERS else 7.3
    axes.text(x, y + 0.245, text, fontsize=size, color=QUIET, **style)
