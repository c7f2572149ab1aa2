"""The page in a real browser: what one does with it, and who can."""

import math

import pytest

pytest.importorskip("playwright.sync_api", reason="needs playwright to drive Chromium")

from browser_page import QUESTION, Opener, eventually, marked, result, translate, word
from chromium import CONTRASTS
from playwright.sync_api import Page, Route, expect
from scripted_engine import ScriptedEngine, serving

from mt.serving.engine import Overloaded

pytest_plugins = ["chromium", "browser_page"]


def test_typing_translates_once_the_typist_pauses(page: Page, engine: ScriptedEngine) -> None:
    page.locator("#source").press_sequentially(QUESTION)
    expect(result(page)).to_have_text("Wo wohnst du?")
    expect(page.locator("#others-list")).to_have_text("Wo lebst du?Wo wohnen Sie?")
    assert len(engine.jobs) < 5  # of 18 keys
    expect(page.locator("#spoken")).to_have_text("Wo wohnst du?")


def test_partial_results_come_before_the_final_one(page: Page, engine: ScriptedEngine) -> None:
    engine.words = 2
    page.fill("#source", QUESTION)
    expect(result(page)).to_have_text("Wo wohnst")
    expect(result(page)).to_have_attribute("aria-busy", "true")
    expect(page.locator("#work")).to_be_visible()
    expect(page.locator("#spoken")).to_be_empty()
    engine.words = math.inf
    expect(result(page)).to_have_text("Wo wohnst du?")
    expect(result(page)).to_have_attribute("aria-busy", "false")


def test_a_stale_answer_is_dropped_and_its_work_ends(page: Page, engine: ScriptedEngine) -> None:
    engine.words = 1
    page.fill("#source", QUESTION)
    expect(result(page)).to_have_text("Wo")
    page.fill("#source", "I see the house.")
    expect(result(page)).to_have_text("Ich")
    engine.words = math.inf
    expect(result(page)).to_have_text("Ich sehe das Haus.")
    assert engine.cancelled == [QUESTION]
    translate(page, QUESTION, "Wo wohnst du?")
    assert [list(job.texts) for job in engine.jobs].count([QUESTION]) == 2  # nothing was kept


def test_a_slow_answer_stays_behind_a_later_one(page: Page, engine: ScriptedEngine) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if QUESTION in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/translate", hold)
    page.fill("#source", QUESTION)
    eventually(lambda: len(held) == 1, page)
    page.fill("#source", "I see the house.")
    expect(result(page)).to_have_text("Ich sehe das Haus.")
    held[0].continue_()
    page.wait_for_timeout(300)
    expect(result(page)).to_have_text("Ich sehe das Haus.")


def test_only_lines_that_change_are_sent(page: Page, engine: ScriptedEngine) -> None:
    translate(page, f"{QUESTION}\n\nI see the house.", "Wo wohnst du?Ich sehe das Haus.")
    assert page.locator("#result .line").all_text_contents() == [
        "Wo wohnst du?", "", "Ich sehe das Haus.",
    ]  # fmt: skip
    page.locator("#result .word").first.focus()
    page.keyboard.press("ArrowDown")
    expect(word(page, "Ich")).to_be_focused()
    page.fill("#source", f"{QUESTION}\n\nI see it.")
    expect(result(page)).to_have_text("Wo wohnst du?I SEE IT.")
    assert [list(job.texts) for job in engine.jobs][1:] == [["I see it."]]


def test_hovering_marks_the_words_looked_at(page: Page) -> None:
    translate(page, f"A ½ ROAD IS LONG.\n{QUESTION}", "EINE ½ STRASSE IST LANG.Wo wohnst du?")
    word(page, "STRASSE").hover()
    assert marked(page, "#mirror") == ["ROAD"]
    weight = page.locator("#mirror .linked").evaluate("e => e.style.getPropertyValue('--weight')")
    assert float(weight) == pytest.approx(0.8, abs=0.01)
    word(page, "wohnst").hover()
    assert marked(page, "#mirror") == ["live"]
    page.mouse.move(5, 5)
    expect(page.locator(".linked")).to_have_count(0)


def test_hovering_the_source_marks_the_translation(page: Page) -> None:
    translate(page, f"{QUESTION}\n{QUESTION}", "Wo wohnst du?Wo wohnst du?")
    box = page.locator("#mirror .word", has_text="live").nth(1).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert marked(page, "#result") == ["wohnst"]
    assert page.locator("#result .line").nth(1).locator(".linked").count() == 1
    page.locator("#source").press("Control+End")
    page.locator("#source").press("Home")
    page.locator("#source").press("ArrowRight")
    assert marked(page, "#result") == ["Wo"]  # at the cursor


def test_a_word_is_replaced_and_the_rest_continued(page: Page, engine: ScriptedEngine) -> None:
    translate(page, f"I see the house. {QUESTION}", "Ich sehe das Haus. Wo wohnst du?")
    word(page, "wohnst").click()
    items = page.get_by_role("menuitemradio")
    expect(items).to_have_text(["wohnst du?", "lebst du?", "wohnen Sie?"])
    job = next(job for job in engine.jobs if job.options.alternatives)
    assert (list(job.texts), list(job.prefixes)) == ([QUESTION], ["Wo"])
    assert job.options.alternatives == job.options.n_best == 6
    items.nth(1).click()
    expect(result(page)).to_have_text("Ich sehe das Haus. Wo lebst du?")
    expect(word(page, "lebst")).to_be_focused()
    word(page, "lebst").hover()
    assert marked(page, "#mirror") == ["live"]  # the links of the new sentence
    word(page, "du").click()  # the choice is part of the prefix
    expect(items).to_have_count(1)
    assert list(engine.jobs[-1].prefixes) == ["Wo lebst"]
    page.keyboard.press("Escape")
    page.locator("#source").press("Control+End")
    page.keyboard.type("\nMore.")
    expect(result(page)).to_have_text("Ich sehe das Haus. Wo lebst du?MORE.")


def test_a_choice_stands_while_an_earlier_one_is_answered(
    page: Page, engine: ScriptedEngine
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if '"keep":false' in (route.request.post_data or "").replace(" ", ""):
            held.append(route)
        else:
            route.continue_()

    translate(page, f"I see the house. {QUESTION}", "Ich sehe das Haus. Wo wohnst du?")
    page.route("**/v1/translate", hold)
    items = page.get_by_role("menuitemradio")
    word(page, "wohnst").click()
    items.nth(1).click()
    expect(result(page)).to_have_text("Ich sehe das Haus. Wo lebst du?")
    word(page, "sehe").click()  # its menu belongs to the text before the answer
    expect(items).not_to_have_count(0)
    eventually(lambda: len(held) == 1, page)
    held.pop().continue_()
    word(page, "lebst").hover()
    eventually(lambda: marked(page, "#mirror") == ["live"], page)
    items.filter(has_text="erblicke").click()
    expect(result(page)).to_have_text("Ich erblicke das Haus. Wo lebst du?")
    expect(page.locator("#others")).to_contain_text("of “Ich erblicke das Haus.”")


def test_other_translations_of_the_sentence(page: Page, engine: ScriptedEngine) -> None:
    translate(page, QUESTION, "Wo wohnst du?")
    others = page.locator("#others-list button")
    others.nth(1).click()
    expect(result(page)).to_have_text("Wo wohnen Sie?")
    expect(others).to_have_text(["Wo wohnst du?", "Wo lebst du?"])
    page.fill("#source", f"{QUESTION} I see the house.")
    expect(page.locator("#others")).to_be_hidden()  # of which sentence, nobody has said
    word(page, "Haus").click()
    expect(page.locator("#others")).to_contain_text("of “Ich sehe das Haus.”")
    expect(others).to_have_text(["Ich erblicke das Haus."])


def test_copy_and_clear(open_page: Opener, live_server: str, engine: ScriptedEngine) -> None:
    page = open_page(live_server, permissions=["clipboard-read", "clipboard-write"])
    expect(page.locator("#copy")).to_be_disabled()
    translate(page, f"{QUESTION}\n\nI see the house.", "Wo wohnst du?Ich sehe das Haus.")
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "Wo wohnst du?\n\nIch sehe das Haus."
    page.evaluate("getSelection().selectAllChildren(document.getElementById('result'))")
    page.keyboard.press("Control+C")
    selected = page.evaluate("navigator.clipboard.readText()")
    assert selected.strip() == "Wo wohnst du?\n\nIch sehe das Haus."
    page.click("#clear")
    expect(page.locator("#source")).to_have_value("")
    expect(result(page)).to_be_empty()
    expect(page.locator("#source")).to_be_focused()
    page.keyboard.press("Control+Z")
    expect(page.locator("#source")).to_have_value(f"{QUESTION}\n\nI see the house.")


def test_both_panes_scroll_to_the_same_line(page: Page) -> None:
    numbers = [f"Line {i} {'and more ' * (i % 7 * 5)}." for i in range(100)]
    page.fill("#source", "\n".join(numbers))
    expect(page.locator("#result .line").nth(99)).to_have_text(numbers[99].upper())
    page.locator("#result-scroll").evaluate("e => e.scrollTop = e.scrollHeight / 2")

    def first_lines() -> list[int]:
        script = (
            "e => [...e.querySelectorAll('.line')]"
            ".findIndex(line => line.offsetTop + line.offsetHeight > e.scrollTop + 1)"
        )
        panes = ("#source-scroll", "#result-scroll")
        return [page.locator(pane).evaluate(script) for pane in panes]

    eventually(lambda: first_lines()[0] > 20, page)
    source, translation = first_lines()
    assert abs(source - translation) <= 1
    assert translation < 80
    page.locator("#source").press("Control+End")
    page.keyboard.type("!")  # the cursor stays in sight
    eventually(lambda: min(first_lines()) > 80, page)


def test_the_mirror_breaks_lines_where_the_textarea_does(page: Page) -> None:
    line = "AVAVA, To. Va - 'We' fi fl ffi W.A. Yes.  Two  blanks\tand a tab "
    lengths = range(20, 320, 4)
    page.fill("#source", "\n".join((line * 6)[:length] + "x" * length for length in lengths))
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        own = page.locator("#source").evaluate(
            "e => { e.style.height = 0; const own = e.scrollHeight;"
            " e.style.removeProperty('height'); return own; }"
        )
        assert own == page.locator("#mirror").evaluate("e => e.offsetHeight") > 1000


def test_the_keyboard_alone_is_enough(page: Page) -> None:
    page.keyboard.type(QUESTION)  # the textarea has the focus from the start
    expect(result(page)).to_have_text("Wo wohnst du?")
    focused = page.locator(":focus")
    for key, expected in (("Tab", "Copy"), ("Tab", "Wo"), ("ArrowRight", "wohnst")):
        page.keyboard.press(key)
        expect(focused).to_have_text(expected)
    expect(focused).to_have_attribute("aria-haspopup", "menu")
    assert focused.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    assert marked(page, "#mirror") == ["live"]
    page.keyboard.press("Enter")
    for key, expected in (
        ("ArrowDown", "lebst du?"), ("End", "wohnen Sie?"), ("ArrowDown", "wohnst du?"),
        ("ArrowUp", "wohnen Sie?"), ("Home", "wohnst du?"), ("ArrowDown", "lebst du?"),
    ):  # fmt: skip
        expect(page.locator(".item:focus")).to_be_visible()
        page.keyboard.press(key)
        expect(focused).to_have_text(expected)
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(focused).to_have_text("wohnst")
    page.keyboard.press(" ")
    expect(page.locator(".item:focus")).to_have_text("wohnst du?")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(result(page)).to_have_text("Wo lebst du?")
    expect(focused).to_have_text("lebst")


def test_theme_and_size_are_kept(page: Page) -> None:
    def ground() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    def size() -> float:
        return page.evaluate(
            "parseFloat(getComputedStyle(document.getElementById('source')).fontSize)"
        )

    light, before = ground(), size()
    page.click("#theme")
    page.click("#larger")
    dark, larger = ground(), size()
    assert light != dark
    assert larger > before
    expect(page.locator("#theme")).to_have_attribute("aria-pressed", "true")
    page.reload()
    assert (ground(), size()) == (dark, larger)
    for _ in range(8):
        page.click("#smaller", force=True)
    assert size() < before


def test_what_it_cannot_do_is_said(page: Page) -> None:
    footer = page.locator("footer")
    expect(footer).to_contain_text("from English to German only. Please check numbers and names.")
    expect(page.locator("#everyday")).to_be_hidden()  # this engine's model is another one


PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def test_on_a_phone(open_page: Opener, live_server: str, engine: ScriptedEngine) -> None:
    page = open_page(live_server, **PHONE)
    translate(page, QUESTION + "\n" + "x" * 200, "Wo wohnst du?" + "X" * 200)
    word(page, "wohnst").tap()
    expect(page.get_by_role("menuitemradio").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    box = page.get_by_role("menu").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    small = page.evaluate(
        "[...document.querySelectorAll('button, [role=menuitemradio]')]"
        ".filter(e => e.checkVisibility())"
        ".map(e => [e.textContent, e.offsetWidth, e.offsetHeight])"
        ".filter(([, width, height]) => width < 44 || height < 44)"
    )
    assert small == []
    source, translation = (page.locator(pane).bounding_box() for pane in ("#source", "#result"))
    assert translation["y"] > source["y"] + source["height"] - 1 or translation["x"] == source["x"]


def test_a_long_address_fits_on_a_phone(
    open_page: Opener, live_server: str, engine: ScriptedEngine
) -> None:
    page = open_page(live_server, viewport={"width": 360, "height": 640})
    text = f"Read https://example.org/{'a_long_name_' * 8}first."
    translate(page, text, text.upper())
    page.locator("#result .word").first.click()
    expect(page.get_by_role("menuitemradio").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate(
        "[...document.querySelectorAll('.menu, #others')]"
        ".filter(e => e.scrollWidth > e.clientWidth && e.checkVisibility()).length == 0"
    )


def test_a_model_may_call_its_languages_as_it_likes(
    open_page: Opener, live_server: str, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.translator, "languages", ("text_en", "de"))
    with serving(engine) as address:
        page = open_page(address)
        expect(page).to_have_title("Translate text_en to German")
        translate(page, QUESTION, "Wo wohnst du?")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(open_page: Opener, live_server: str, engine: ScriptedEngine, scheme: str) -> None:
    page = open_page(live_server, color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator("#theme")).to_have_attribute("aria-pressed", str(scheme == "dark").lower())
    for state in ("empty", "menu", "error"):
        if state == "menu":
            translate(page, QUESTION, "Wo wohnst du?")
            word(page, "wohnst").click()
            expect(page.get_by_role("menuitemradio").first).to_be_visible()
            expect(page.locator("#mirror .linked")).to_have_count(1)
        if state == "error":
            engine.error = Overloaded(9)
            page.fill("#source", "I see the house.")
            expect(page.locator("#message")).to_contain_text("busy")
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) > 8
        assert [c for c in contrasts if c["ratio"] < 4.5] == [], state


def test_every_control_has_a_name(page: Page) -> None:
    translate(page, QUESTION, "Wo wohnst du?")
    word(page, "wohnst").click()
    expect(page.get_by_role("menuitemradio").first).to_be_focused()
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    named = {"button", "textbox", "menu", "menuitemradio", "group", "region", "heading", "form"}
    controls = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node["ignored"] and node["role"]["value"] in named
    ]
    assert len(controls) > 15
    assert [role for role, name in controls if not name.strip()] == []
    assert ("textbox", "Your text") in controls
    assert ("menu", "Others for “wohnst”") in controls
    languages = {pane: page.locator(pane).get_attribute("lang") for pane in ("#source", "#result")}
    assert languages == {"#source": "en", "#result": "de"}
