"""All templates of the slot grammar and all pairs that they make."""

from __future__ import annotations

from functools import cache

from . import descriptions, everyday, sentences
from .grammar import Template


@cache
def templates() -> tuple[Template, ...]:
    """Return all templates of the grammar."""
    return (*sentences.templates(), *descriptions.templates(), *everyday.templates())


@cache
def expand() -> tuple[tuple[str, str], ...]:
    """Return all pairs of all templates, without repetition."""
    return tuple(dict.fromkeys(p for template in templates() for p in template.sentences()))
