"""The pictures of a report: which files there are, their sizes, and what the bars say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Done

from mt import inspect as entry
from mt.inference.translator import Translator
from mt.inspection.report import inspect
from mt.utils import BASE_STYLE

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from PIL import Image

from mt.inspection import drawing, pictures, tree_picture

SENTENCE = "The bear opens the door."


@pytest.fixture(scope="module")
def report(model_folder: Path) -> dict[str, Any]:
    return inspect(Translator.load(model_folder), SENTENCE, beam_size=2, max_length=4)


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


@pytest.mark.slow
def test_the_entry_point_writes_every_view(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model_folder: Path
) -> None:
    folder = tmp_path / "pictures"
    options = ["--model", str(model_folder), "--target", "Der Bär hört."]
    code = entry.main([SENTENCE, "--output", str(folder), *options])
    assert Done(code, *capsys.readouterr()) == (0, f"Der Bär hört.\n{folder}\n", "")
    assert {path.stem for path in folder.iterdir()} == set(pictures.VIEWS)
    for path in folder.iterdir():
        with Image.open(path) as image:
            assert image.format == "PNG"
            assert image.width >= drawing.WIDTH * drawing.LARGE_DPI
            low, high = image.convert("L").getextrema()
        assert low < 100  # something is drawn
        assert high == 255
        assert path.stat().st_size <= drawing.MOST_BYTES


def test_candidates_are_the_likeliest_the_chosen_one_and_the_rest() -> None:
    top = [[f"▁{i}", 9.0 - i, 0.5 / 2**i] for i in range(20)]
    step = {"piece": "▁1", "rank": 2, "log_prob": np.log(0.25), "top": top}
    names, values, colours = drawing.candidates(step, 100)
    assert names == ["▁0", "✓ ▁1", "▁2", "▁3", "▁4", "95 others"]
    assert values.sum() == pytest.approx(1)
    assert colours.count(drawing.ACCENT) == 1
    assert colours[1] == drawing.ACCENT
    unlikely = {**step, "piece": "▁x", "rank": 50, "log_prob": np.log(0.001)}
    names, values, colours = drawing.candidates(unlikely, 100)
    assert names[4] == "✓ ▁x"
    assert values[4] == pytest.approx(0.001)
    assert values.sum() == pytest.approx(1)


def test_a_heat_map_has_the_numbers_of_the_matrix_and_masked_cells_are_empty() -> None:
    axes = Figure().subplots()
    matrix = np.array([[1.0, np.nan], [0.25, 0.75]])
    image = drawing.heat_map(axes, matrix, ["a", "b"], ["c", "d"], numbers=True, low=0.0, high=1.0)
    assert texts(axes) == ["1.00", "0.25", "0.75"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["c", "d"]
    assert (image.norm.vmin, image.norm.vmax) == (0, 1)
    signed = drawing.heat_map(Figure().subplots(), np.array([[-1.0, 3.0]]))
    assert (signed.norm.vmin, signed.norm.vmax) == (-3, 3)  # white is zero


def test_bars_have_their_values_beside_them() -> None:
    axes = Figure().subplots()
    drawing.bars(axes, ["a", "b"], np.array([2.0, -1.0]), drawing.ACCENT, drawing.number)
    assert texts(axes) == ["2.00", "−1.00"]
    assert [bar.get_width() for bar in axes.patches] == [2, -1]


def test_the_path_of_the_best_reaches_from_the_root_to_it(report: dict[str, Any]) -> None:
    nodes, [best, *_] = report["tree"]["nodes"], report["tree"]["n_best"]
    won = tree_picture._path(nodes, best)
    assert {0, best} <= won
    assert len(won) == nodes[best]["step"] + 1


def test_the_ramps_of_colours_are_those_of_the_page() -> None:
    folder = Path(pictures.__file__).parent / "page"
    script = (folder / "colours.js").read_text("utf-8")
    for ramp in (drawing.ABOVE, drawing.BELOW):
        assert ", ".join(f'"{colour}"' for colour in ramp) in script
    sheets = (BASE_STYLE, folder / "inspect.css")
    style = "".join(p.read_text("utf-8").split(':root[data-theme="dark"]')[0] for p in sheets)
    for name in ("TEXT", "QUIET", "LINE", "EDGE", "ACCENT", "HERE", "OTHER", "SECOND"):
        assert f"--{name.lower()}: {getattr(drawing, name)};" in style
