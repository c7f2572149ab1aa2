"""What is changed in typed text before it is translated."""

import time

import pytest

from mt.inference.typed_text import tidy

UNCHANGED = [
    "The boys' room isn't Tom's.",
    "Rock 'n' roll, 'em and 'cause.",
    "Call print('hello') now.",
    "Set name = 'mt' first.",
    "`'a b'` and <b>'a'</b>",
    "He is 6'2'' tall.",
    "'Twas 'the",  # no end
    "\"She told me 'no' yesterday.\"",
]


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("'Why not?' she asked.", '"Why not?" she asked.'),
        ("‘I don’t know,’ said Tom.", '"I don’t know," said Tom.'),
        ("'The boys' room is small,' he said.", '"The boys\' room is small," he said.'),
        ("He said 'yes' and then ‘no’.", 'He said "yes" and then "no".'),
        ("(the 'experts')", '(the "experts")'),
        ("(so ('called') he)", '(so ("called") he)'),
        ("“She told me ‘no’ yesterday.”", "“She told me 'no' yesterday.”"),
        ("The '60s, ‘98 and '7", "The ’60s, ’98 and '7"),
        *((text, text) for text in UNCHANGED),
    ],
)
def test_quotation_marks_are_double_ones(typed: str, written: str) -> None:
    assert tidy(typed) == (written, ())


@pytest.mark.parametrize(
    ("typed", "written", "apart"),
    [
        ("Hello , you !", "Hello, you!", (0, 1)),
        ("Why ? Because 'I' say so .", 'Why? Because "I" say so.', (0, 4)),
        ("The ratio is 2 : 1", "The ratio is 2 : 1", ()),
        ('"So" , I said (twice) ; 50 % ?', '"So", I said (twice); 50 %?', (0, 3, 5)),
        ("Tom ... left , a - , b", "Tom ... left, a - , b", (2,)),
        ("( ; ) and [ , ]", "( ; ) and [ , ]", ()),
        ('type " , " or “ , ”', 'type " , " or “ , ”', ()),
        ("sad :( . Bye", "sad :( . Bye", ()),
        ("`a` , b", "`a` , b", ()),
    ],
)
def test_no_mark_stands_apart(typed: str, written: str, apart: tuple[int, ...]) -> None:
    assert tidy(typed) == (written, apart)


def test_many_marks_are_soon_read() -> None:
    begin = time.perf_counter()
    assert len(tidy("word , " * 100_000)[1]) == 100_000
    assert time.perf_counter() - begin < 10
