"""English→German machine translation with the Transformer of *Attention Is All You Need*.

``from mt import Translator`` is the programming interface. Names are loaded when they are first
used, so that ``import mt`` alone does not load torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mt import _old_names

if TYPE_CHECKING:
    from mt.inference.options import SearchOptions
    from mt.inference.translation import Translation
    from mt.inference.translator import Translator

__version__ = "0.1.0"

__all__ = ["SearchOptions", "Translation", "Translator"]

_MODULES = {
    "SearchOptions": "mt.inference.options",
    "Translation": "mt.inference.translation",
    "Translator": "mt.inference.translator",
}

_old_names.install()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mt' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
