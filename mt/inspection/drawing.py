"""What the pictures share: the page's colours, heat maps, and how a picture is saved.

Sizes are in inches and points. A picture is WIDTH wide where that is enough, so that its text is
read at 9 points or more in a column of text.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from mt.utils.atomic import atomic_write

Matrix = NDArray[np.float64]

WIDTH = 7.2
SHOWN = 5  # candidates of a step
DPI, LARGE_DPI = 160, 90
MOST_BYTES = 150_000  # of a picture; where it has more, fewer colours are kept
LARGE = 80  # square inches
PALETTES = (256, 64, 16)
# The light colours of page/inspect.css and page/colours.js.
TEXT, QUIET, LINE, EDGE = "#1c2024", "#5a6169", "#d9d7d0", "#85898e"
ACCENT, HERE, OTHER, SECOND = "#1f5a94", "#d5e5f6", "#8aa6c1", "#a8580c"
ABOVE = ["#ffffff", "#cfdff0", "#7fabd6", "#2f6fae", "#123f6e", "#08213f"]
BELOW = ["#ffffff", "#fadfc2", "#eba85e", "#bf6a14", "#7a3d05", "#3f1d00"]
SEQUENTIAL = LinearSegmentedColormap.from_list("above", ABOVE)
DIVERGING = LinearSegmentedColormap.from_list("both", [*reversed(BELOW), *ABOVE[1:]])

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": EDGE,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,  # a dollar sign of the text is no formula
}


@contextmanager
def picture(path: Path, height: float, width: float = WIDTH) -> Iterator[Figure]:
    """A figure that is saved as PNG when the block succeeds."""
    with matplotlib.rc_context(STYLE):
        dpi = DPI if width * height <= LARGE else LARGE_DPI
        figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained", facecolor="white")
        yield figure
        drawn = BytesIO()
        figure.savefig(drawn, format="png")
    image = Image.open(drawn).convert("RGB")
    for colours in PALETTES:
        # the method that keeps colours of a few pixels
        indexed = image.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        file = BytesIO()
        indexed.save(file, format="PNG", optimize=True)
        if file.tell() <= MOST_BYTES:
            break
    atomic_write(path, file.getvalue())


def heat_map(
    axes: Any,
    matrix: Matrix,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    *,
    numbers: bool = False,
    low: float | None = None,
    high: float | None = None,
    square: bool = False,
) -> Any:
    """Draw a matrix, with the labels of its rows and columns, and return the image.

    With both signs the scale goes from -high to high, else from ``low``, the least value, to
    ``high``. NaN stays white.
    """
    axes.spines[:].set_visible(False)
    high = high or float(np.nanmax(np.abs(matrix))) or 1.0
    least = float(np.nanmin(matrix))
    signed = least < 0 if low is None else low < 0
    image = axes.imshow(
        matrix,
        cmap=DIVERGING if signed else SEQUENTIAL,
        vmin=-high if signed else (min(least, high - 1e-9) if low is None else low),
        vmax=high,
        aspect="equal" if square else "auto",
        interpolation="nearest",
    )
    axes.set_xticks(range(len(columns)), columns, rotation=90 if _crowded(columns) else 0)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    if columns:
        axes.xaxis.tick_top()
    if numbers:
        for (i, j), value in np.ndenumerate(matrix):
            if np.isfinite(value):
                dark = abs(value) > 0.54 * high
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8.5,
                          color="white" if dark else TEXT)  # fmt: skip
    return image


def _crowded(labels: Sequence[str]) -> bool:
    return sum(map(len, labels)) > 45


def colour_bar(figure: Figure, image: Any, axes: Any, label: str) -> None:
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=25, pad=0.02)
    bar.set_label(label)
    bar.outline.set_visible(False)


def strip(axes: Any, values: Matrix, title: str, high: float | None = None) -> None:
    """A vector as one row of colours."""
    heat_map(axes, values[None, :], low=-1.0, high=high)
    axes.set_title(title, pad=3)
    axes.set_xticks([])
    axes.set_yticks([])
    outline(axes)


def bars(
    axes: Any,
    names: Sequence[str] | None,
    values: Matrix,
    colours: str | Sequence[str],
    text: Any,
) -> None:
    """Horizontal bars from top to bottom, with their values beside them."""
    places = range(len(values))
    axes.barh(places, values, color=colours, height=0.72)
    axes.set_ylim(len(values) - 0.5, -0.5)
    if names is not None:
        axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    span = (high - low) or 1.0
    axes.set_xlim(low - (0.62 * span if low < 0 else 0), high + 0.62 * span)
    axes.axvline(0, color=EDGE, linewidth=0.8)
    for place, value in zip(places, values, strict=True):
        right = value >= 0
        axes.annotate(text(value), (value, place), (3 if right else -3, 0), va="center",
                      ha="left" if right else "right", fontsize=8.5,
                      textcoords="offset points")  # fmt: skip


def candidates(step: dict[str, Any], vocab_size: int) -> tuple[list[str], Matrix, list[str]]:
    """Names, probabilities and colours of the likeliest pieces, the one that came, all others."""
    rows = [(piece, p) for piece, _, p in step["top"][:SHOWN]]
    chosen = step["rank"] - 1
    if chosen >= len(rows):
        rows[-1], chosen = (step["piece"], float(np.exp(step["log_prob"]))), len(rows) - 1
    rest = max(0.0, 1 - sum(p for _, p in rows))
    names = [f"✓ {piece}" if i == chosen else piece for i, (piece, _) in enumerate(rows)]
    colours = [ACCENT if i == chosen else OTHER for i in range(len(rows))]
    return (
        [*names, f"{vocab_size - len(rows):,} others"],
        np.array([*(p for _, p in rows), rest]),
        [*colours, EDGE],
    )


def outline(axes: Any) -> None:
    """A thin frame, without which the white cells at the border of a map have no end."""
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(LINE)


def number(x: float, digits: int = 2) -> str:
    return f"{x:.{digits}f}".replace("-", "−")


def percent(p: float) -> str:
    if 0 < p < 1e-4:
        return "< 0.01 %"
    return f"{100 * p:.{2 if p < 0.1 else 1}f} %"
