"""Where the elements of a segment stand in its translation, by the links between the words."""

import itertools
import re
import unicodedata
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from mt.documents.document import Segment, TagKind
from mt.documents.word_links import WORD, Link, Span

# An amount is one word with its sign, which German writes on the other side.
_NUMBER = r"[0-9]+(?:[.,][0-9]+)*\+?"
_AMOUNT = rf"[$€£¥]{_NUMBER}(?!\w|[.,]\w)|{_NUMBER}[ \u00a0]?[$€£¥%](?!\w)"
_WORD = re.compile(rf"(?P<amount>{_AMOUNT})|{WORD.pattern}")
MARK_WITHIN = 10  # words between the translation of a word and that of the mark after it


@dataclass(eq=False)
class Element:
    """An element and where it stands. The root is none: it stands for the whole text."""

    number: int
    kind: TagKind  # OPEN or EMPTY
    start: int
    end: int = 0
    children: list["Element"] = field(default_factory=list)
    target: Span = (0, 0)
    words: Span = (0, 0)  # of the target: numbers of the first one and the one after the last


class _Words:
    """The words of a text, cut at some places."""

    def __init__(self, text: str, cuts: Sequence[int], pattern: re.Pattern[str]) -> None:
        self.text = text
        self.spans: list[Span] = []
        self.first: dict[Span, int] = {}  # of a whole word: the number of its first piece
        for match in pattern.finditer(text):
            inner_cuts = cuts[bisect_right(cuts, match.start()) : bisect_left(cuts, match.end())]
            self.first[match.span()] = len(self.spans)
            self.spans += itertools.pairwise([match.start(), *inner_cuts, match.end()])
        self.starts = [start for start, _ in self.spans]

    def within(self, start: int, end: int) -> Span:
        """Numbers of the first word between two places and of the one after the last."""
        first = bisect_left(self.starts, start)
        return first, max(first, bisect_left(self.starts, end))

    def gap(self, number: int, start: int, end: int) -> Span:
        """What lies before a word of that number, between ``start`` and ``end``."""
        before = self.spans[number - 1][1] if number else 0
        after = self.spans[number][0] if number < len(self.spans) else len(self.text)
        return min(max(before, start), end), max(start, min(after, end))


def _cuts_an_amount(text: str, cuts: Sequence[int]) -> bool:
    """Whether the sign and the digits of an amount may belong to two elements."""
    amounts = (match.span() for match in _WORD.finditer(text) if match["amount"])
    return any(bisect_right(cuts, start) < bisect_left(cuts, end) for start, end in amounts)


def _find(spans: Sequence[Span], wanted: Span) -> Span | None:
    """The first of the words that has a character of another span."""
    i = bisect_right(spans, (wanted[0], wanted[0]))
    around = [span for span in spans[max(0, i - 1) : i + 1] if span[1] > wanted[0]]
    return next((span for span in around if span[0] < wanted[1]), None)


class Placement:
    """Puts the elements of a source into a target."""

    def __init__(self, source: Segment, target: str, links: Sequence[Link]) -> None:
        cuts = sorted({tag.position for tag in source.tags})
        word = WORD if _cuts_an_amount(source.text, cuts) else _WORD
        self.source = _Words(source.text, cuts, word)
        whole = list(self.source.first)
        wholes = [match.span() for match in word.finditer(target)]
        pairs: dict[tuple[Span, Span], float] = {}  # of whole words
        for first, second, weight in links:
            s, t = _find(whole, first), _find(wholes, second)
            if s and t and weight > 0:
                pairs[s, t] = max(weight, pairs.get((s, t), 0.0))
        # A word that stays as it is is cut where it was cut.
        same = {
            t: s
            for (s, t), _ in sorted(pairs.items(), key=lambda pair: pair[1])
            if source.text[slice(*s)] == target[slice(*t)]
        }
        self.target = _Words(
            target,
            sorted(
                cut - s[0] + t[0]
                for t, s in same.items()
                for cut in cuts[bisect_right(cuts, s[0]) : bisect_left(cuts, s[1])]
            ),
            word,
        )
        # The weights of the links of each word of the source to words of the target
        self.weights: list[dict[int, float]] = [{} for _ in self.source.spans]
        self.linked = [0.0] * len(self.target.spans)  # the sum, for each word of the target
        for (s, t), weight in pairs.items():
            self._link(s, t, weight, same.get(t) == s)
        self.linked_before = [0.0, *itertools.accumulate(self.linked)]

    def _link(self, s: Span, t: Span, weight: float, is_same: bool) -> None:
        sources, targets = self._pieces(self.source, s), self._pieces(self.target, t)
        matched = zip(sources, targets, strict=True) if is_same else None
        for i, j in matched or itertools.product(sources, targets):
            lengths = [end - start for start, end in (self.source.spans[i], self.target.spans[j])]
            share = lengths[0] / (s[1] - s[0])
            if not is_same:
                share *= lengths[1] / (t[1] - t[0])
            # Long words say more: of "hat ... aufgegeben" for "gave up" it is the second.
            self.weights[i][j] = weight * share * lengths[1] ** 0.5
            self.linked[j] += self.weights[i][j]

    @staticmethod
    def _pieces(words: _Words, whole: Span) -> range:
        first = words.first[whole]
        return range(first, words.within(*whole)[1])

    def place_children(self, parent: Element) -> None:
        """Set where the children of a parent stand, which has its place."""
        parent.words = self.target.within(*parent.target)
        owners: dict[int, Element] = {}  # of words of the target
        wordy: list[tuple[Element, Span]] = []  # the children with words of the source
        others = []
        taken: list[Span] = []  # of the target, in order
        for child in parent.children:
            words = self.source.within(child.start, child.end)
            if child.start < child.end and (child.start, child.end) == (parent.start, parent.end):
                child.target, child.words = parent.target, parent.words
                owners.update(dict.fromkeys(range(*parent.words), child))
                taken.append(child.target)
            elif words[0] < words[1]:
                wordy.append((child, words))
            else:
                others.append(child)
        self._choose_words(parent, wordy, owners)
        others += self._draw_edges(parent, wordy, taken)
        for child in others:
            child.target = self._beside(parent, child, owners, taken)
            insort(taken, child.target)

    def _choose_words(
        self, parent: Element, wordy: list[tuple[Element, Span]], owners: dict[int, Element]
    ) -> None:
        """Choose words of the target for each child that has words of the source."""
        weights_of = {child: self._own_weights(parent, words) for child, words in wordy}
        most: dict[int, float] = {}
        for child, weights in weights_of.items():
            for word, weight in weights.items():
                if weight > most.get(word, 0.0):
                    most[word], owners[word] = weight, child
        all_words = self.source.within(parent.start, parent.end)
        for child, words in sorted(wordy, key=lambda pair: -sum(weights_of[pair[0]].values())):
            chosen = self._best_span(child, weights_of[child], owners)
            if words == all_words:
                chosen = parent.words
            for word in weights_of[child]:
                if owners.get(word) is child:
                    del owners[word]
            if chosen:
                child.words = self._stretch(parent, words, chosen, owners)
                owners.update(dict.fromkeys(range(*child.words), child))
        for child, _ in wordy:
            if child.words[0] == child.words[1]:
                child.words = self._free_word(parent, child, owners)
                owners.update(dict.fromkeys(range(*child.words), child))

    def _free_word(self, parent: Element, child: Element, owners: dict[int, Element]) -> Span:
        """The nearest word for an element whose own words have no translation, or none.

        Of the two words beside its place, one without links is better, then the second.
        """
        place = self._beside(parent, child, owners, [])[0]
        following = bisect_left(self.target.starts, place)
        free = (word for word in range(*parent.words) if word not in owners)

        def distance(word: int) -> tuple[int, bool, bool]:
            away = max(word - following, following - 1 - word)
            return away, self.linked[word] > 0, word < following

        word = min(free, key=distance, default=None)
        return (following, following) if word is None else (word, word + 1)

    def _own_weights(self, parent: Element, words: Span) -> dict[int, float]:
        """The weights of the links of some words of the source to words of the target."""
        weights: dict[int, float] = defaultdict(float)
        for word in range(*words):
            for other, weight in self.weights[word].items():
                if parent.words[0] <= other < parent.words[1]:
                    weights[other] += weight
        return weights

    def _best_span(
        self, child: Element, weights: dict[int, float], owners: dict[int, Element]
    ) -> Span | None:
        """The span with the most weight of links to the child, less that of other links.

        It has no word that is another child's. This is Kadane's algorithm on the words with a link.
        """
        best, best_value = None, 0.0
        start, value, last = -1, 0.0, -1
        for word in sorted(weights):
            gap = self.linked_before[word] - self.linked_before[last + 1]
            is_free = owners.get(word, child) is child
            goes_on = (
                start >= 0
                and value > gap
                and all(owners.get(i, child) is child for i in range(last + 1, word))
            )
            if not goes_on:
                start, value = word, 0.0
            else:
                value -= gap
            value += 2 * weights[word] - self.linked[word]
            last = word
            if not is_free:
                start = -1
            elif best is None or value > best_value:
                best, best_value = (start, word + 1), value
        return best

    def _stretch(
        self, parent: Element, words: Span, chosen: Span, owners: dict[int, Element]
    ) -> Span:
        """A span with the words without links at the ends of a parent, if it was at that end.

        They must not be the translation of the word on the other side of the element.
        """
        bounds = self.source.within(parent.start, parent.end)
        first, last = chosen
        before, after = range(parent.words[0], first), range(last, parent.words[1])
        if any(self.linked[i] or i in owners for i in (before if words[0] == bounds[0] else after)):
            return chosen
        if words[0] == bounds[0] and words[1] < bounds[1] and self.weights[words[1]]:
            first = parent.words[0]
        elif words[1] == bounds[1] and words[0] > bounds[0] and self.weights[words[0] - 1]:
            last = parent.words[1]
        return first, last

    def _draw_edges(
        self, parent: Element, wordy: list[tuple[Element, Span]], taken: list[Span]
    ) -> list[Element]:
        """Set where the children begin and end between two words; those without one are left."""
        without_words = []
        end = parent.target[0]
        for child, words in sorted(wordy, key=lambda pair: pair[0].words):
            if child.words[0] == child.words[1]:
                without_words.append(child)
                continue
            edges = [
                self._cut(
                    self.source.gap(number, parent.start, parent.end),
                    place,
                    self.target.gap(other, *parent.target),
                    is_late,
                )
                for number, place, other, is_late in (
                    (words[0], child.start, child.words[0], True),
                    (words[1], child.end, child.words[1], False),
                )
            ]
            child.target = max(end, edges[0]), max(end, *edges)
            end = child.target[1]
            insort(taken, child.target)
        return without_words

    def _beside(
        self, parent: Element, child: Element, owners: dict[int, Element], taken: list[Span]
    ) -> Span:
        """The place of an element without words: by the word that it stood by.

        That is the word to which no blank leads, the one before it if both or none are so; the
        next one before it that is linked, where those are not.
        """
        text, bounds = self.source.text, self.source.within(parent.start, parent.end)
        after = bisect_left(self.source.starts, child.start, *bounds)  # the word after it
        source_gap = self.source.gap(after, parent.start, parent.end)
        before, behind = text[source_gap[0] : child.start], text[child.end : source_gap[1]]
        is_last = after == bounds[1] and child.start > parent.start
        is_wordless = child.end <= source_gap[1]
        is_late = is_wordless and _has_blank(before) and not _has_blank(behind)
        following = self._best(parent, after) if after < bounds[1] else -1
        if is_last and (before or child.end == parent.end):
            number = parent.words[1]
        elif after == bounds[0]:
            number, is_late = parent.words[0], bool(before)
        elif is_late and following >= 0:
            owner = owners.get(following)
            number = owner.words[0] if owner and owner.words[1] > following else following
        else:
            number = self._after_translation(parent, after, following, owners, before)
        gap = self.target.gap(number, *parent.target)
        start = end = self._cut(source_gap, child.start, gap, is_late)
        if is_wordless and child.end > child.start:
            end = max(start, self._cut(source_gap, child.end, gap, is_late))
        return _free(start, end, taken)

    def _after_translation(
        self, parent: Element, after: int, following: int, owners: dict[int, Element], before: str
    ) -> int:
        """The target's word before which to put what stood before the word ``after``."""
        first, last = self.source.within(parent.start, parent.end)
        nearest = (self._best(parent, i) for i in range(after - 1, first - 1, -1))
        if following >= 0 and self._best(parent, after - 1) < 0:
            return following
        number = next((i for i in nearest if i >= 0), None)
        if number is None:  # nothing is known: as far as it was
            share = (after - first) / (last - first)
            return parent.words[0] + round(share * (parent.words[1] - parent.words[0]))
        owner = owners.get(number)
        number = owner.words[1] if owner and owner.words[1] > number else number + 1
        mark = before.strip()[-1:]  # it stood after a mark, whose translation may come later
        for other in range(number, min(parent.words[1], number + MARK_WITHIN) + 1):
            if mark and mark in self.target.text[slice(*self.target.gap(other, *parent.target))]:
                return other
        return number

    def _best(self, parent: Element, word: int) -> int:
        """The word of the target that renders one of the source, or -1."""
        weights = self._own_weights(parent, (word, word + 1))
        return max(weights, key=lambda i: (weights[i], i), default=-1)

    def _cut(self, source_gap: Span, place: int, gap: Span, is_late: bool) -> int:
        """Where to cut what is between two words of the target, as it is cut in the source.

        Both sides should have as many blanks, quotes or brackets, and other marks as in the source.
        Of equally good places it takes the first or, if ``is_late``, the last.
        """
        source_left = _count(self.source.text[source_gap[0] : place])
        source_right = _count(self.source.text[place : source_gap[1]])
        target_left, target_right = [0, 0, 0], _count(self.target.text[slice(*gap)])
        best, least = gap[0], None
        for cut in range(gap[0], gap[1] + 1):
            if cut > gap[0]:
                kind = _kind(self.target.text[cut - 1])
                target_left[kind] += 1
                target_right[kind] -= 1
            pairs = zip(source_left + source_right, target_left + target_right, strict=True)
            cost = sum(abs(one - other) for one, other in pairs)
            if least is None or cost < least or (is_late and cost == least):
                best, least = cut, cost
        return best


def _kind(c: str) -> int:
    """0 for a blank, 1 for a quote or bracket, 2 for other marks."""
    if c.isspace():
        return 0
    return 1 if c in "\"'" or unicodedata.category(c) in ("Pi", "Pf", "Ps", "Pe") else 2


def _count(text: str) -> list[int]:
    counts = [0, 0, 0]
    for c in text:
        counts[_kind(c)] += 1
    return counts


def _has_blank(text: str) -> bool:
    return any(map(str.isspace, text))


def _free(start: int, end: int, taken: list[Span]) -> Span:
    """A span, or where it begins if it would overlap others, which are in order."""
    i = bisect_right(taken, (start, start))
    if i and taken[i - 1][1] > start:  # inside another one: at its nearer end
        first, last = taken[i - 1]
        start = end = first if start - first < last - start else last
    elif i < len(taken) and taken[i][0] < end:
        end = start
    return start, end
