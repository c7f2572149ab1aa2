"""A report as one HTML file: style, scripts and data inside, and no request to anywhere.

The files are in the folder ``page`` beside this module. Its Content-Security-Policy lets the
browser run the scripts whose hashes it has, and load nothing.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mt.utils import BASE_STYLE
from mt.utils.atomic import FilePath, atomic_write

FOLDER = Path(__file__).parent / "page"
STYLES = ("inspect.css", "views.css", "layers.css", "small.css")
THEME = ("theme.js",)  # runs before the page is first drawn
SCRIPTS = (  # one module: each file uses names of those before it
    "dom.js", "numbers.js", "colours.js", "matrix.js", "pieces.js", "positions.js", "attention.js",
    "byhand.js", "continue.js", "steps.js", "tree.js", "hypotheses.js", "alignment.js", "main.js",
)  # fmt: skip


def render(reports: Sequence[dict[str, Any]]) -> str:
    """The page of a report of ``mt.inspection.report.inspect``, or of several models' reports.

    ``report["server"]``, if there is one, is the path at which a server shows the page of another
    translation, by the parameters ``text`` and ``prefix``. Raises ValueError for a number that
    JSON cannot hold.
    """
    style, theme, script = _inline()
    data = json.dumps(reports, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "policy": policy(),
        "style": style,
        "theme": theme,
        "script": script,
        "report": data.replace("<", "\\u003c"),  # so that no text of it ends the element
    }
    page = _read(["template.html"])
    for name, content in parts.items():  # the report last: it may contain a placeholder's text
        page = page.replace(f"{{{{{name}}}}}", content)
    return page


def policy() -> str:
    """The Content-Security-Policy of every page."""
    style, theme, script = map(_hash, _inline())
    sources = f"script-src {theme} {script}; style-src {style}"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"


def write_page(reports: Sequence[dict[str, Any]], path: FilePath) -> None:
    """Write the page of one report or more. Raises OSError when the file cannot be written."""
    atomic_write(path, render(reports))


def is_page(path: Path) -> bool:
    """Whether the file is a page of this program, of whatever version."""
    with path.open("rb") as stream:
        return b"<title>Inside a translation</title>" in stream.read(2**12)


def _inline() -> tuple[str, str, str]:
    """The style, the script that runs before the page is drawn, and the other one."""
    style = BASE_STYLE.read_text(encoding="utf-8") + _read(STYLES)
    return style, _read(THEME), _read(SCRIPTS)


def _read(names: tuple[str, ...] | list[str]) -> str:
    return "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in names)


def _hash(content: str) -> str:
    """The source expression of an inline element with this content."""
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"
