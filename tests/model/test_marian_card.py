"""What the card of a MarianMT model, its README.md, tells about it; anybody may have written it."""

from pathlib import Path

import pytest

from mt.model import marian_import


@pytest.mark.parametrize(
    ("card", "facts"),
    [
        ("---\nlicense: apache-2.0\n---\n", {"licence": "apache-2.0"}),
        ("---\r\nlicense: mit\r\n---\r\ntext", {"licence": "mit"}),
        ("---\nlicense: other\nlicense_name: my-own\n---\n", {"licence": "my-own"}),
        ("---\nlicense: [mit, cc-by-4.0]\n---\n", {"licence": "mit, cc-by-4.0"}),
        ("---\nlanguage: no\n---", {"languages on its card": "no"}),  # Norwegian, not false
        ("---\nlicense: {a: b}\nlanguage: [1, {a: b}]\n---\n", {"languages on its card": "1"}),
        ("---\nlicense: a\x1b[2J\n---\n", {}),  # not YAML
        ('---\nlicense: "a\\e[2J\\nb"\n---\n', {"licence": "a\ufffd[2J\ufffdb"}),
        ("---\n- a\n---\n", {}),
        ("---\n---\n", {}),
        ("---\nlicense: mit\nlicense: gpl\n---\n", {"licence": "gpl"}),
        (f"---\nlicense: {'x' * 999}\n---\n", {"licence": "x" * 97 + "..."}),
        (f"---\nlicense: {'[' * 10**5}\n---\n", {}),
        ("---\nlicense: !!python/object/apply:os.abort []\n---\n", {}),
        ("license: mit\n", {}),
        ("", {}),
        (" " * 2**21, {}),
    ],
)
def test_what_a_card_names(tmp_path: Path, card: str, facts: dict[str, str]) -> None:
    (tmp_path / "README.md").write_text(card, newline="")
    assert marian_import.read_card(tmp_path) == facts


def test_a_card_is_no_bomb(tmp_path: Path) -> None:
    lines = ["---", "license: mit", "a0: &a0 {x: y}"]
    lines += [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 60)]
    (tmp_path / "README.md").write_text("\n".join([*lines, "---", ""]))
    assert marian_import.read_card(tmp_path) == {"licence": "mit"}
