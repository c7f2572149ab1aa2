"""Inline tags in a translation: each stands by the words that render what it stood by.

The words are found by word alignment, the most probable pairs of a source and a target word. An
element covers the span that agrees best with its words: the weight of their links less that of
others' links to the span, so that the two parts of a German verb do not drag all that is between
them into it. Its edges between two words are then drawn as in the source: on the same side of
blanks, quotes and other marks.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from mt.documents.document import Segment, Tag, TagKind
from mt.documents.placement import Element, Placement
from mt.documents.word_links import WORD, Link, segment_links
from mt.inference.translation import TranslatedPart, Translation

# Tags times characters; with more, the search for their words would take seconds.
MOST_WORK = 5_000_000
END = re.compile(r"""[.!?…:;]["'”’“»)\]]*\Z""")
ADDED_END = re.compile(r"(?<=[^\W\d_]{3})[.!?]\Z")  # after a word of some length
ABBREVIATIONS = ("usw.", "etc.", "bzw.", "ggf.", "inkl.", "exkl.", "evtl.", "Str.", "Nr.")


def translate_segments(
    segments: Sequence[Segment], translate: Callable[..., list[Translation]]
) -> list[Segment]:
    """The translations of segments, with their tags.

    ``translate`` gets a list of texts, and ``attention=True`` for those whose tags need it; for
    instance ``functools.partial(translator.translate, split=True)``.
    """
    needed = [needs_links(segment) for segment in segments]
    results: dict[int, Translation] = {}
    for attention in (False, True):
        chosen = [i for i, need in enumerate(needed) if need == attention]
        if chosen:
            texts = [segments[i].text for i in chosen]
            done = translate(texts, attention=True) if attention else translate(texts)
            results.update(zip(chosen, done, strict=True))
    return [
        with_tags(segment, results[i].text, results[i].parts) for i, segment in enumerate(segments)
    ]


def needs_links(segment: Segment) -> bool:
    """Whether a segment has tags whose places only the alignment of its words can tell."""
    return any(0 < tag.position < len(segment.text) for tag in segment.tags)


def with_tags(segment: Segment, text: str, parts: Sequence[TranslatedPart]) -> Segment:
    """The translation ``text`` of a segment, made of ``parts``, with the segment's tags.

    Raises ValueError if it ``needs_links`` and a part lacks its alignment.
    """
    text = without_added_end(segment.text, text)
    links = segment_links(segment.text, text, parts) if needs_links(segment) else []
    return place_tags(segment, text, links)


def without_added_end(source: str, target: str) -> str:
    """The target without a mark at its end where the source has none: headings, cells, items."""
    if END.search(source) or target.endswith(ABBREVIATIONS):
        return target
    if target[-1:] in (".", "!", "?") and target[-2:-1] == source[-1:]:  # after a number, a code
        return target[:-1]
    return ADDED_END.sub("", target)


def place_tags(source: Segment, target: str, links: Sequence[Link]) -> Segment:
    """The translation ``target`` with the tags of ``source``, each once and nested as there.

    ``links`` are pairs of a source and a target word; those that are no words of the texts are
    left out. An element that covers the whole source covers the whole target. No tag cuts a word,
    unless it does so in the source and the word stays as it is. An element is empty only if it was
    so, or if the elements around it leave it no word. Where there are thousands of tags, each
    stands as far in the target as in the source. Raises ValueError if the source's tags are not
    balanced and nested.
    """
    root = _tree(source)
    if target == source.text or not source.tags:
        return replace(source, text=target)
    if len(source.tags) * len(target) > MOST_WORK:
        return _in_proportion(source, target)
    placement = Placement(source, target, links)
    root.target = 0, len(target)
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        placement.place_children(parent)
        waiting += [child for child in parent.children if child.children]
    return Segment(target, tuple(_tags(root)))


def _in_proportion(source: Segment, target: str) -> Segment:
    """The tags as far in the target as in the source, each before a word or at the end."""
    starts = [match.start() for match in WORD.finditer(target)] + [len(target)]
    share = len(target) / max(1, len(source.text))
    positions = [
        starts[bisect_left(starts, int(tag.position * share))] if tag.position else 0
        for tag in source.tags
    ]
    placed = zip(source.tags, positions, strict=True)
    return Segment(target, tuple(tag._replace(position=place) for tag, place in placed))


def _tree(segment: Segment) -> Element:
    """The elements of a segment, as children of a root."""
    root = Element(-1, TagKind.OPEN, 0, len(segment.text))
    path, last = [root], 0
    for kind, number, position in segment.tags:
        if not last <= position <= len(segment.text):
            raise ValueError(f"a tag at {position}: not in the text, or not in order")
        last = position
        if kind is not TagKind.CLOSE:
            element = Element(number, kind, position, position)
            path[-1].children.append(element)
            if kind is TagKind.OPEN:
                path.append(element)
        elif len(path) == 1 or path[-1].number != number:
            raise ValueError(f"element {number} is closed, but it is not the last one open")
        else:
            path.pop().end = position
    if len(path) > 1:
        raise ValueError(f"element {path[-1].number} is not closed")
    return root


def _tags(root: Element) -> Iterator[Tag]:
    """The tags of the elements where they stand in the target."""
    waiting: list[Element | Tag] = [root]  # a stack: elements may be nested deeply
    while waiting:
        item = waiting.pop()
        if isinstance(item, Tag):
            yield item
            continue
        if item.kind is TagKind.EMPTY:
            yield Tag(item.kind, item.number, item.target[0])
            continue
        if item is not root:
            yield Tag(TagKind.OPEN, item.number, item.target[0])
            waiting.append(Tag(TagKind.CLOSE, item.number, item.target[1]))
        waiting += sorted(item.children, key=lambda child: child.target)[::-1]
