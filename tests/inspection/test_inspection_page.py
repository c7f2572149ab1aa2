"""The page of a report in a real browser, with the network cut."""

import json
import math
import re
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="needs playwright to drive Chromium")

import torch
from chromium import CONTRASTS
from inspection_pages import TEMPERATURES, VIEWS, Opener, brief, go_to, make_report, number
from playwright.sync_api import Browser, Page, expect

from mt.inference.translator import Translator
from mt.inspection.arrays import decode
from mt.inspection.page import render
from mt.inspection.report import inspect

pytest_plugins = ["chromium", "inspection_pages"]
REPORT = make_report()
ALL_DRAWN = """async () => {
  const start = performance.now();
  for (const link of document.querySelectorAll("nav a")) link.click();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - start;
}"""
NAMELESS = """() =>
  [...document.querySelectorAll("button, canvas[tabindex], [role=button], input, a")]
  .filter((element) => !(element.getAttribute("aria-label") || element.textContent.trim()
    || element.labels?.[0]?.textContent.trim()))
  .map((element) => element.outerHTML)"""


@pytest.fixture
def page(open_report: Opener) -> Page:
    return open_report(REPORT)


# Views and their numbers


def test_each_view_has_a_heading_and_is_drawn_when_it_comes_into_sight(page: Page) -> None:
    assert page.locator("section").evaluate_all("all => all.map(({id}) => id)") == VIEWS
    assert page.locator("section[data-drawn]").count() < len(VIEWS)
    for view in VIEWS:
        go_to(page, view)
        expect(page.locator(f"#{view} h2")).to_be_in_viewport()
        assert page.locator(f"#{view} .view").inner_text().strip()
    expect(page.locator("#summary")).to_contain_text("The source's <b>text</b>")
    expect(page.locator("#summary")).to_contain_text("“What is found” (log P −1.25; of the given")


def test_pieces_have_ids_neighbours_and_inputs(page: Page) -> None:
    go_to(page, "pieces")
    chips = page.locator("#pieces button.chip")
    expect(chips.first).to_have_text("▁source04")  # "source0", id 4
    page.locator("#pieces").get_by_role("button", name="target1").click()
    expect(page.locator("#pieces .panel li").nth(1)).to_have_text("like-▁target1-10.800")
    for side, pieces in (("Encoder", "source"), ("Decoder", "target")):
        page.locator("#pieces label", has_text=side).click()
        embedding = number(REPORT["embedding"][pieces], 1, 3)
        position = number(REPORT["positions"]["learned"], 1, 3)
        for i, expected in enumerate((embedding, position, embedding + position)):
            assert read_cell(page, "#pieces canvas", i, 1, 3).endswith(brief(expected))


def test_positions_are_shown_beside_learned_ones(page: Page) -> None:
    go_to(page, "positions")
    learned = decode(REPORT["positions"]["learned"])
    expected = [
        number(REPORT["positions"]["table"], 1, 2),
        number(REPORT["positions"]["dot_products"], 1, 2),
        learned[1, 2],
        learned[1] @ learned[2],
    ]
    for i, value in enumerate(expected):
        text = read_cell(page, "#positions canvas", i, 1, 2)
        shown = float(text.rpartition(": ")[2].replace("−", "-"))
        assert shown == pytest.approx(value, abs=0.06 if abs(value) >= 10 else 0.0006)


def test_attention_of_each_head_is_small_and_large(page: Page) -> None:
    go_to(page, "attention")
    for kind in ("encoder", "decoder", "cross"):
        check_attention(page, kind)


def check_attention(page: Page, kind: str) -> None:
    page.locator(f"#attention input[value={kind}]").check(force=True)
    minis = page.locator("#attention .mini")
    assert minis.count() == 2 * (2 + 1)
    entropy = decode(REPORT["attention"]["entropy"][kind])
    expect(minis.nth(4)).to_have_text(f"{entropy[1, 1]:.2f}")
    minis.nth(4).click()
    expect(page.locator("#attention .large h3")).to_contain_text("layer 2, head 2")
    weights = decode(REPORT["attention"][kind])
    assert read_cell(page, "#attention .large canvas", 0, 2, 1).endswith(brief(weights[1, 1, 2, 1]))
    page.locator("#attention .large summary").click()
    page.locator("#attention .large tbody").wait_for()
    rows = page.locator("#attention .large tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent))"
    )
    assert len(rows) == len(weights[1, 1])
    for row in rows:
        assert sum(float(cell.replace("−", "-") or 0) for cell in row) == pytest.approx(
            1, abs=0.003
        )
    if kind == "decoder":
        assert rows[0][1:] == ["", ""]  # masked
        assert read_cell(page, "#attention .large canvas", 0, 0, 2).endswith("masked")
    minis.nth(5).click()
    mean = weights[1].mean(axis=0)
    assert read_cell(page, "#attention .large canvas", 0, 1, 0).endswith(brief(mean[1, 0]))


def test_models_side_by_side(open_report: Opener) -> None:
    others = make_report(T=4)
    others["model"] = {**others["model"], "name": "/runs/second/last.ckpt", "N": 2}
    others["target"] = {**others["target"], "text": "Another target"}
    page = open_report(REPORT, others)
    expect(page.locator(".source-text")).to_have_count(1)
    expect(page.locator(".target-text")).to_contain_text(["The target", "Another target"])
    go_to(page, "attention")
    models = page.locator("#attention .side-by-side > div")
    expect(models.locator("> h3")).to_have_text(["models/random", "second/last.ckpt"])
    models.nth(0).locator("button.mini").nth(4).click()  # shows the same head of the other model
    expect(models.locator(".large h3")).to_have_text(["Cross-attention, layer 2, head 2"] * 2)
    go_to(page, "steps")
    steps = page.locator("#steps .side-by-side > div")
    for column, report in enumerate((REPORT, others)):
        first = steps.nth(column).locator("[data-p]").first
        p = report["steps"][0]["top"][0][2]
        assert float(first.get_attribute("data-p")) == pytest.approx(p, abs=1e-6)
    steps.nth(1).locator("button.chip").nth(3).click()
    expect(steps.nth(1).locator("h3").nth(1)).to_contain_text("After “")
    expect(steps.nth(0).locator("h3").nth(1)).to_have_text("At the beginning")
    go_to(page, "pieces")
    ids = page.locator("#pieces").inner_text()
    page.locator("#pieces").get_by_label("second/last.ckpt").check(force=True)
    assert page.locator("#pieces").inner_text() != ids


def test_a_step_by_hand(page: Page) -> None:
    go_to(page, "by-hand")
    record = REPORT["by_hand"][2]
    table = page.locator("#by-hand table")
    cells = table.first.locator("tbody tr").nth(1).locator("td").all_inner_texts()
    scores, scaled, softmax = (decode(record[n]["values"]) for n in ("scores", "scaled", "softmax"))
    assert cells[0] == f"{scores[1]:.2f}".replace("-", "−")
    assert cells[1] == brief(scaled[1])
    assert cells[3].strip() == f"{softmax[1]:.3f}"
    unscaled = decode(record["unscaled_softmax"]["values"])
    assert table.nth(1).locator("tbody tr").nth(1).locator("td").nth(1).inner_text().strip() == (
        f"{unscaled[1]:.3f}"
    )
    text = page.locator("#by-hand").inner_text()
    for name in ("x", "q", "K", "V", "context", "after_W_O", "add_norm", "feed_forward_inner"):
        shape = " × ".join(str(n) for n in record[name]["shape"])
        assert f"{name} Kᵀ (equation 1) [{shape}]" in re.sub(r"\s+", " ", text)
    page.locator("#by-hand input[value=decoder]").check(force=True)
    row = page.locator("#by-hand table").first.locator("tbody tr").nth(2)
    expect(row).to_contain_text("0 → −∞")
    expect(row.locator("s")).to_have_count(1)


# The next piece


def test_temperature_recomputes_the_distribution(page: Page) -> None:
    go_to(page, "steps")
    for step in range(3):
        check_distribution(page, step)


def check_distribution(page: Page, step: int) -> None:
    page.locator("#steps button.chip").nth(step).click()
    logits = torch.tensor(REPORT["steps"][step]["logits"], dtype=torch.float64)
    slider = page.get_by_label("Temperature")
    slider.focus()
    page.keyboard.press("Home")
    for temperature in TEMPERATURES:
        assert float(slider.get_attribute("aria-valuetext") or "") == temperature
        probs = (logits / temperature).softmax(0)
        shown = page.locator("#steps [data-p]").evaluate_all("all => all.map((x) => +x.dataset.p)")
        assert sum(shown) == pytest.approx(1, abs=1e-9)
        assert shown[:20] == pytest.approx(probs[logits.topk(20).indices].tolist(), abs=1e-9)
        if step == 2:  # what was taken is the 30th, and shown with the others
            taken = page.locator("#steps .candidate", has_text="taken").first
            expect(taken).to_contain_text("rank 30")
            p = probs[logits.topk(30).indices[29]]
            assert float(taken.get_attribute("data-p") or "") == pytest.approx(float(p), abs=1e-9)
        page.keyboard.press("ArrowRight")


def test_a_file_says_how_to_continue(page: Page) -> None:
    go_to(page, "steps")
    page.locator("#steps button.chip").nth(1).click()
    page.locator("#steps button.candidate").first.click()
    rival = REPORT["steps"][1]["top"][0][0].replace("▁", "")
    expect(page.locator("#steps .command")).to_have_text(
        f"python -m mt.inspect 'The source'\\''s <b>text</b>' --target 'target0 {rival}'"
        " --model '/models/random' --output page.html"
    )
    go_to(page, "tree")
    page.locator("#tree [data-node='4']").click()
    expect(page.locator("#tree .command")).to_contain_text("--target 'Wo le'")


@pytest.mark.parametrize("server", ["/inspect", "http://elsewhere.test/inspect"])
def test_a_server_continues_from_a_candidate(open_report: Opener, server: str) -> None:
    page = open_report({**REPORT, "server": server}, address="http://here.test/inspect?text=x")
    go_to(page, "steps")
    links = page.locator("#steps a.candidate")
    go_to(page, "tree")
    page.locator("#tree [data-node='4']").click()
    if server.startswith("http"):  # of another origin: no link to it
        assert links.count() == 0
        expect(page.locator("#tree .command")).to_be_visible()
        return
    assert links.count() == 20
    link = page.locator("#tree .panel a")
    expect(link).to_have_text("Continue from “Wo le”")
    assert link.get_attribute("href") == (
        "http://here.test/inspect?text=The+source%27s+%3Cb%3Etext%3C%2Fb%3E&prefix=Wo+le"
    )


# The beam and the alignment


def test_the_beam(page: Page) -> None:
    go_to(page, "tree")
    assert page.locator("#tree .node").count() == 5
    assert page.locator("#tree .node.pruned").count() == 1
    won = page.locator("#tree .node.won").evaluate_all("all => all.map((n) => n.dataset.node)")
    assert won == ["0", "1", "3"]
    panel = page.locator("#tree .panel")
    expect(panel).to_contain_text("−1.250 / 1.250 = −1.000")
    expect(panel).to_contain_text("it won")
    page.locator("#tree [data-node='2']").click()
    expect(panel).to_contain_text("pruned: it is not among the 2 best that go on")
    results = page.locator("#tree table").last.locator("tr").all_inner_texts()
    assert [re.sub(r"\s+", " ", row) for row in results[1:]] == [
        "1 Wo −1.250 1.250 −1.000", "greedy Wo le −2.750 2.000 −1.375"
    ]  # fmt: skip
    expect(page.locator("#tree .beside .differs")).to_have_count(3)  # </s>; le, </s>


def test_alignment_links_words(page: Page) -> None:
    go_to(page, "alignment")
    paths = page.locator("#alignment .lines path")
    assert paths.count() == 2
    page.get_by_role("button", name="▁target1: linked with ▁source1 0.60").hover()
    expect(page.locator("#alignment .lines path.linked")).to_have_count(1)
    expect(page.locator("#alignment .word.linked")).to_have_text(["▁source1", "▁target1"])
    soft = number(REPORT["alignment"]["soft"], 2, 1)
    assert read_cell(page, "#alignment canvas", 0, 2, 1).endswith(brief(soft))


# Who can use it, and how


def test_the_keyboard_reaches_everything(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_text("To the first view")).to_be_focused()
    for _ in range(4):  # the theme, then the third view's link
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("#attention[data-drawn]").wait_for()
    page.keyboard.press("Tab")  # into the view
    expect(page.locator("#attention input[value=cross]")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#attention input[value=decoder]")).to_be_checked()
    page.locator("#attention .mini").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#attention .large h3")).to_contain_text("layer 2, head 2")
    go_to(page, "tree")
    page.locator("#tree .node[tabindex='0']").focus()
    for key, node in (("ArrowLeft", "1"), ("ArrowDown", "2"), ("ArrowUp", "1"), ("Home", "0")):
        page.keyboard.press(key)
        expect(page.locator(f"#tree [data-node='{node}']")).to_be_focused()
    stops = page.locator("#tree .node[tabindex='0']")
    assert stops.count() == 1


def test_a_mouse_reads_numbers_in_a_matrix(page: Page) -> None:
    go_to(page, "alignment")
    canvas = page.locator("#alignment canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 10, box["y"] + box["height"] - 10)
    expect(page.locator("#alignment .readout")).to_contain_text("“</s>” comes from “</s>”: ")


def test_each_picture_has_a_name_and_a_table(page: Page) -> None:
    page.evaluate(ALL_DRAWN)
    assert page.evaluate(NAMELESS) == []
    for view in set(VIEWS) - {"by-hand"}:
        figures = page.locator(f"#{view} figure.map, #{view} svg.tree, #{view} .lines").count()
        tables = page.locator(f"#{view} details", has_text="able").count()
        assert tables >= figures, view
    first = page.locator("#positions details").first
    first.locator("summary").click()
    table = decode(REPORT["positions"]["table"])
    expect(first.locator("tbody tr").nth(5).locator("td").nth(7)).to_have_text(brief(table[5, 7]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible_and_fits_a_phone(open_report: Opener, scheme: str) -> None:
    page = open_report(REPORT, viewport={"width": 375, "height": 700}, color_scheme=scheme)
    page.evaluate(ALL_DRAWN)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    texts = page.evaluate(CONTRASTS)
    assert len(texts) > 300
    assert [text for text in texts if text["ratio"] < 4.5] == []


def test_the_theme_changes_pictures_too(page: Page) -> None:
    go_to(page, "attention")
    picture = "document.querySelector('.large canvas').toDataURL()"
    light = page.evaluate(picture)
    page.locator("#theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(picture) != light
    page.locator("#theme").click()
    assert page.evaluate(picture) == light


# The file


def test_no_text_can_become_markup(open_report: Opener) -> None:
    text = "</script><img src=//evil.test/x onerror=alert(1)> {{script}} <!-- &amp;"
    report = json.loads(json.dumps(REPORT))
    report["source"]["text"] = report["source"]["pieces"][0] = text
    page = open_report(report)
    expect(page.locator(".source-text")).to_have_text(text)
    page.evaluate(ALL_DRAWN)
    assert page.locator("img").count() == 0
    assert page.title() == f"Inside a translation: {text}"


def test_the_policy_lets_no_other_script_run(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(render([REPORT]), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page.content())
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    blocked = page.evaluate("""() => new Promise((done) => {
      addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
      const script = document.createElement("script");
      script.textContent = "document.title = 'changed'";
      document.body.append(script);
    })""")
    assert blocked == "script-src-elem"
    assert page.title() != "changed"
    page.close()


def test_a_number_that_json_cannot_hold_is_an_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        render([{**REPORT, "temperatures": [math.nan]}])


def test_a_large_report_is_small_and_drawn_at_once(open_report: Opener) -> None:
    report = make_report(S=30, T=30, N=6, h=8, d_model=512)
    for step in report["steps"]:
        del step["logits"]
    assert len(render([report]).encode()) <= 1_000_000
    page = open_report(report)
    assert page.evaluate("+document.documentElement.dataset.ready") < 1000  # ms
    assert page.evaluate(ALL_DRAWN) < 1000
    assert page.locator("section[data-drawn]").count() == len(VIEWS)
    assert page.locator("#attention .mini").count() == 6 * 9


@pytest.mark.parametrize(
    ("sentence", "target"),
    [
        ("Where do you live?", None),
        ("I see the house.", "Ich sehe ein Haus."),
        ("Yesterday my older sister bought three red apples.", None),
    ],
)
def test_the_page_of_a_real_translation(
    open_report: Opener, everyday: Translator, sentence: str, target: str | None
) -> None:
    report = inspect(everyday, sentence, target)
    page = open_report(report)
    page.evaluate(ALL_DRAWN)
    expect(page.locator(".target-text")).to_contain_text(report["target"]["text"])
    first = report["steps"][0]
    shown = page.locator("#steps [data-p]").evaluate_all("all => all.map((x) => +x.dataset.p)")
    assert shown[:20] == pytest.approx([p for _, _, p in first["top"]], abs=1e-6)
    assert page.locator("#tree .node").count() == len(report["tree"]["nodes"])
    assert page.locator("#alignment .lines path").count() == len(report["alignment"]["links"])


def read_cell(page: Page, canvases: str, which: int, row: int, column: int) -> str:
    """What a matrix says about a cell to which the arrow keys have gone."""
    canvas = page.locator(canvases).nth(which)
    canvas.focus()
    for key, times in (("PageUp", 1), ("Home", 1), ("ArrowDown", row), ("ArrowRight", column)):
        for _ in range(times):
            page.keyboard.press(key)
    return canvas.locator("xpath=ancestor::figure").locator(".readout").inner_text()
