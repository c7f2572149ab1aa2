"""Which words belong together: soft alignment, words of pieces, links, and the choice of heads."""

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from conftest import Done, babbler
from torch import Tensor

from mt.data.special_ids import BOS
from mt.data.tokenizer import Tokenizer
from mt.inference import alignment
from mt.inference.alignment import Aligner, align, find_aligner, line_links, soft_alignment, words
from mt.inference.incremental import InferenceModel
from mt.inference.inputs import plan_inputs
from mt.inference.translation import TranslatedPart
from mt.inference.translator import Translator


def test_a_shifted_row_is_the_one_that_reads_the_token() -> None:
    attention = torch.rand(2, 3, 4, 5).softmax(dim=-1)
    one, other = attention[1, 2], attention[0, 0]
    plain = soft_alignment(attention, Aligner([(1, 2)], shifted=False))
    assert torch.equal(plain, one)
    shifted = soft_alignment(attention, Aligner([(1, 2)], shifted=True))
    assert torch.equal(shifted, one[[1, 2, 3, 3]])
    mean = soft_alignment(attention, Aligner([(1, 2), (0, 0)], shifted=False))
    assert mean.sub((one + other) / 2).abs().max() < 1e-7


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], []),
        (["▁Where", "▁do", "▁you", "?"], [("Where", [0]), ("do", [1]), ("you", [2]), ("?", [3])]),
        (["▁Well", "-", "known"], [("Well-known", [0, 1, 2])]),
        (["▁it", "'", "s", "▁3", ".", "5", "0", "!?"], [("it's", [0, 1, 2]),
         ("3.50", [3, 4, 5, 6]), ("!?", [7])]),
        (["▁", "(", "ab", "c", ").", "▁"], [("(", [1]), ("abc", [2, 3]), (").", [4])]),
        (["▁(a", "▁b)"], [("(", [0]), ("a", [0]), ("b", [1]), (")", [1])]),
        (["▁Erd", "<0xC5>", "<0x91>", "s"], [("Erdős", [0, 1, 2, 3])]),
        (["<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "▁a"], [("😀", [0, 1, 2, 3]), ("a", [4])]),
    ],
)  # fmt: skip
def test_words(pieces: list[str], expected: list[tuple[str, list[int]]]) -> None:
    assert words(pieces) == expected


def test_words_between_blanks() -> None:
    pieces = ["▁(", "a", "▁b", ")", "▁", "▁c"]
    assert words(pieces, alignment.BETWEEN_BLANKS) == [("(a", [0, 1]), ("b)", [2, 3]), ("c", [5])]


def soft(rows: list[list[float]]) -> Tensor:
    return torch.tensor([*rows, [0.0] * len(rows[0])])


def test_links_are_the_largest_of_a_row_or_a_column() -> None:
    source, target = ["▁a", "▁b", "b", "▁c", "▁d"], ["▁x", "▁y", "y", "▁z"]
    rows = [
        [0.9, 0.0, 0.0, 0.0, 0.1, 0.0],
        [0.1, 0.4, 0.4, 0.0, 0.1, 0.0],
        [0.0, 0.1, 0.3, 0.4, 0.2, 0.0],  # of y: a 0.05, b 0.6, c 0.2, d 0.15
        [0.1, 0.0, 0.1, 0.0, 0.1, 0.7],  # most goes to eos
    ]
    alignment = align(soft(rows), source, target)
    assert (alignment.source, alignment.target) == (["a", "bb", "c", "d"], ["x", "yy", "z"])
    links = [(s, t, round(weight, 4)) for s, t, weight in alignment.links]
    # c is linked as the largest of its column; d too; z attends to nothing with LEAST_WEIGHT.
    assert links == [(0, 0, 0.9), (1, 1, 0.6), (2, 1, 0.2), (3, 1, 0.15)]


def test_nothing_is_linked_to_nothing() -> None:
    assert align(torch.ones(1, 3), ["▁a", "▁b"], []).links == []
    assert align(torch.ones(2, 1), [], ["▁a"]).links == []


def test_the_words_of_a_line_are_counted_through_its_parts() -> None:
    part = TranslatedPart(
        ("▁a", "▁b", "."), ("▁x", "."), (), None, soft([[0, 1, 0, 0], [0, 0, 1, 0]])
    )
    assert line_links([part, part]) == [(1, 0), (3, 1)]
    # The sign of a list is a word of both sides.
    listed = [replace(part, before="  - "), replace(part, before=" ")]
    assert line_links(listed) == [(2, 1), (4, 2)]
    # A mark that stands apart is a word of the line: "a , b ."
    apart = [replace(part, apart=(0,)), part]
    assert line_links(apart) == [(2, 0), (4, 1)]
    with pytest.raises(ValueError, match="attention=True"):
        line_links([TranslatedPart(("▁a",), ("▁x",), ())])


class Scripted:
    """A model of 2 layers and 3 heads; head 1 of layer 1 finds the copies when it reads them."""

    device = torch.device("cpu")
    h = 3
    decoder = (None, None)

    def __init__(self, sharpness: float) -> None:
        self.sharpness = sharpness

    def cross_attention_weights(self, src: Tensor, outputs: list[list[int]]) -> list[Tensor]:
        weights = []
        for row, output in zip(src.tolist(), outputs, strict=True):
            S = row.index(3) + 1
            attention = torch.rand(2, 3, len(output) + 1, S)
            for t, token in enumerate([BOS, *output]):
                attention[1, 1, t] += self.sharpness * torch.tensor(
                    [float(token == other) for other in row[:S]]
                )
            weights.append(attention / attention.sum(dim=-1, keepdim=True))
        return weights


def test_the_heads_are_those_that_find_copied_words(bpe: Tokenizer) -> None:
    aligner = find_aligner(Scripted(1000), bpe)  # type: ignore[arg-type]
    assert aligner == Aligner([(1, 1)], shifted=True)
    every = [(n, i) for n in range(2) for i in range(3)]
    assert find_aligner(Scripted(0), bpe) == Aligner(every, shifted=False)  # type: ignore[arg-type]


def test_a_model_that_does_not_copy_gives_the_mean_of_all_heads(bpe: Tokenizer) -> None:
    model = InferenceModel(babbler(bpe.vocab_size, h=4))
    assert find_aligner(model, bpe) == Aligner([(0, i) for i in range(4)], shifted=False)


def test_words_of_pieces_are_words_of_the_text(everyday: Translator) -> None:
    text = "It isn't worth 1,850 euros, Mr Bäumler: see page 2 (or 3)!"
    pieces = everyday.tokenizer.pieces(everyday.tokenizer.encode([text])[0])
    assert [word for word, _ in words(pieces)] == alignment.TOKEN.findall(text)


def test_a_translation_has_its_alignment_with_its_attention(babbling: Translator) -> None:
    sentences = ["I am here.", "You are there. He is not."]
    for result in babbling.translate(sentences, attention=True, split=True, max_length=9):
        for part in result.parts:
            assert part.attention is not None
            assert part.alignment is not None
            assert torch.equal(part.alignment, soft_alignment(part.attention, babbling.aligner))
            assert part.alignment.shape == part.attention.shape[2:]
    assert babbling.translate(sentences)[0].parts[0].alignment is None


def test_the_command_line_prints_links(run_translate: Callable[..., Done]) -> None:
    lines = b"Where do you live? My red bicycle is here!\n\nThank you.\n"
    done = run_translate("--align", "--device", "cpu", stdin=lines)
    assert done.code == 0
    assert len(done.out.splitlines()) == 3
    first, blank, _ = done.out.splitlines()
    assert blank == ""
    assert re.fullmatch(r"\d+-\d+( \d+-\d+)*", first)
    done = run_translate("--align", "--json", "--split", "--device", "cpu", stdin=lines)
    records = [json.loads(line) for line in done.out.splitlines()]
    assert records[1]["alignment"] == []
    assert "parts" not in records[0]
    source, translation = (records[0][side].split() for side in ("source", "translation"))
    linked = {(source[s], translation[t]) for s, t in records[0]["alignment"]}
    assert {("Where", "Wo"), ("My", "Mein"), ("bicycle", "Fahrrad"), ("red", "rotes")} <= linked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--align", "--n-best", "2"), "--json"),
        (("--align", "--score", "x"), "leave out --align"),
        (("--align", "--engine", "ctranslate2", "--model", "x"), "not for --engine ctranslate2"),
    ],
)
def test_what_does_not_go_with_align(
    run_translate: Callable[..., Done], arguments: tuple[str, ...], message: str
) -> None:
    done = run_translate(*arguments)
    assert done.code == 2
    assert message in done.err


def test_words_are_counted_as_the_line_has_them(bpe: Tokenizer) -> None:
    """The model reads "Hello, you!", and the line has its marks apart."""
    ((one,), (two,)) = plan_inputs(["1. Hello , you !", "a {b , c}"], bpe, 50, split=True)
    assert (one.before, one.text, one.apart) == ("1. ", "Hello, you!", (0, 1))
    assert two.apart == ()
