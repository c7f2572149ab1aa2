"""Terms as texts: what is found, how it becomes ids, and how it is written in the translation."""

import pytest

from mt.inference.glossary import Glossary
from mt.inference.terms import TermEncoder, TermRules, Terms, text_with_terms
from mt.inference.translator import Translator

GLOSSARY = Glossary([("contract", ["Kontrakt"]), ("house", ["Gebäude"])])


def test_rules_find_terms() -> None:
    rules = TermRules(GLOSSARY, keep=True, forbidden=("Sie",))
    terms = rules.of("My contract is at https://example.org/contract.html today.")
    assert terms.forbidden == ("Sie",)
    assert [forms[0] for forms in terms.required] == [
        "https://example.org/contract.html",
        "Kontrakt",
    ]
    assert not TermRules()
    assert TermRules().of("A contract.") == Terms()


def test_a_term_of_the_glossary_comes_before_an_item_in_it() -> None:
    glossary = Glossary([("5", ["fünf"]), ("Windows 10", ["Fenster 10"]), ("org", ["x"])])
    rules = TermRules(glossary, keep=True)
    terms = rules.of("I have 5 and 15 of Windows 10 of example.org.")
    assert [forms[0] for forms in terms.required] == ["15", "example.org", "fünf", "Fenster 10"]
    assert rules.of("5").required[0][0] == "fünf"
    assert not rules.of("5").is_whole_text
    assert rules.of("15").is_whole_text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Terms(required=((),)), "must not be blank"),
        (lambda: Terms(required=((" ",),)), "must not be blank"),
        (lambda: Terms(forbidden=("",)), "must not be blank"),
        (lambda: Terms(forbidden="Haus"), "forbidden: must be phrases, not one text"),
        (lambda: Terms(forbidden=("Haus", "?!")), r"'\?!' is punctuation: only words can be"),
        (lambda: TermRules(keep=True, forbidden="Haus"), "forbidden: must be phrases"),
        (lambda: Terms(required="Haus"), "required: must have the forms of each term"),
        (lambda: Terms(required=("Haus",)), "required: must have the forms of each term"),
        (lambda: Terms((("Haus",),), ("Haus",)), "'Haus' is required and forbidden"),
        (lambda: TermRules(decimal="dutch"), "decimal='dutch': must be one of"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_a_term_is_spelled_after_a_blank_and_after_a_mark(everyday: Translator) -> None:
    encoder = TermEncoder(everyday.tokenizer, everyday.vocabulary)
    terms = encoder.encode(Terms(required=(("Vertrag",),)))
    assert terms is not None
    spelled = [everyday.tokenizer.pieces(list(ids)) for ids in terms.constraints.terms[0]]
    assert spelled[0][0].startswith("▁")
    assert not any(pieces[0].startswith("▁") for pieces in spelled[1:])
    assert not terms.rewrite
    assert encoder.encode(Terms()) is None


def test_a_term_that_the_pieces_cannot_spell_is_written_again(babbling: Translator) -> None:
    assert not babbling.tokenizer.byte_fallback
    encoder = TermEncoder(babbling.tokenizer, babbling.vocabulary)
    terms = encoder.encode(Terms(required=(("日本",),)))
    assert terms is not None
    assert terms.rewrite


@pytest.mark.parametrize(
    ("source", "rules", "word"),
    [
        ("My contract is here.", TermRules(GLOSSARY), "Kontrakt"),
        ("The old houses are big.", TermRules(GLOSSARY), "Gebäude"),
        ("Rename%(name)s failed", TermRules(keep=True), "%(name)s"),
        ("Hello {{user.name}}!", TermRules(keep=True), "{{user.name}}"),
        ("My IBAN is DE89370400440532013000.", TermRules(keep=True), "DE89370400440532013000"),
        ("I LIKE MY CONTRACT AND iPhone13.", TermRules(GLOSSARY, keep=True), "Kontrakt"),
        ("I LIKE MY CONTRACT AND iPhone13.", TermRules(GLOSSARY, keep=True), "iPhone13"),
    ],
)
def test_translations_have_their_terms(
    everyday: Translator, source: str, rules: TermRules, word: str
) -> None:
    assert word not in everyday.translate([source], split=True)[0].text  # the model alone
    assert word in everyday.translate([source], terms=rules, split=True)[0].text


def test_terms_of_each_line(everyday: Translator) -> None:
    lines = ["Where do you live?", "", "I am hungry.", "Where do you live?"]
    terms = [
        Terms(forbidden=("Sie",)),
        Terms(required=(("Hunger",),)),
        Terms(required=(("hungrig", "Hunger"),), forbidden=("Ich",)),
        Terms(required=(("日本",),)),
    ]
    results = [result.text for result in everyday.translate(lines, terms=terms)]
    assert "Sie" not in results[0].replace("?", "").split()
    assert results[1] == ""
    assert "Hunger" in results[2] or "hungrig" in results[2]
    assert "Ich" not in results[2].split()
    assert "日本" in results[3]
    for line, own, expected in zip(lines, terms, results, strict=True):
        assert everyday.translate([line], terms=[own])[0].text == expected
    plain = everyday.translate(lines)
    assert "Sie" in plain[0].text
    assert everyday.translate(lines, terms=[Terms()] * 4) == plain


def test_an_ensemble_and_n_best_have_the_terms() -> None:
    translator = Translator.load(["everyday", "everyday"], "cpu", workers=1)
    (result,) = translator.translate(
        ["Where do you live?"], terms=[Terms(required=(("Sie",),))], n_best=3, prefixes=["Wo"]
    )
    assert len(result.n_best) == 3
    for text, _ in result.n_best:
        assert text.startswith("Wo")
        assert "Sie" in text.replace("?", "").split()


def test_a_line_of_sentences_has_no_terms_of_its_own(everyday: Translator) -> None:
    terms = [Terms(required=(("Sie",),))]
    with pytest.raises(ValueError, match="has 2 sentences: give each its own line"):
        everyday.translate(["One day. Another day."], terms=terms, split=True)
    with pytest.raises(ValueError, match="terms of 1 lines for 2 sentences"):
        everyday.translate(["One.", "Two."], terms=terms)
    with pytest.raises(ValueError, match="terms need beam search"):
        everyday.translate(["One."], terms=terms, samples=2)


def test_written_keeps_the_case_of_terms(everyday: Translator) -> None:
    encoder = TermEncoder(everyday.tokenizer, everyday.vocabulary)
    terms = encoder.encode(Terms(required=(("iPhone",),)))
    assert terms is not None
    (ids,) = everyday.tokenizer.encode_target(["Das iPhone ist neu."])
    assert text_with_terms(ids, terms, everyday.tokenizer, all_caps=True) == "DAS iPhone IST NEU."
    assert text_with_terms(ids, terms, everyday.tokenizer) == "Das iPhone ist neu."


def test_a_word_of_the_glossary_is_in_capitals_where_all_is(everyday: Translator) -> None:
    rules = TermRules(Glossary({"house": "Großes Gebäude", "phone": "iPhone"}))
    lines = ["THE HOUSE IS BIG.", "THE PHONE IS NEW.", "The house is big."]
    texts = [x.text for x in everyday.translate(lines, terms=rules, split=True)]
    wanted = ("GROSSES GEBÄUDE", "iPhone", "Großes Gebäude")
    assert all(word in text for word, text in zip(wanted, texts, strict=True))


@pytest.mark.parametrize(
    "text", ["https://example.com/a", "A4", "%s", "{user}", "€ 5.00", "12", "1. (2)", "→ B7-x"]
)
def test_a_text_without_words_stays_as_it_is(everyday: Translator, text: str) -> None:
    assert TermRules(keep=True).of(text).is_whole_text
    assert not TermRules().of(text).is_whole_text
    (result,) = everyday.translate([text], terms=TermRules(keep=True))
    assert (result.text, result.confidence) == (text, 1.0)


def test_a_term_of_the_glossary_may_be_attached_too(everyday: Translator) -> None:
    rules = TermRules(Glossary([("@name", ["@Name"])]))
    (result,) = everyday.translate(["Write to info@name now."], terms=rules)
    assert "info@Name" in result.text


def test_places_are_those_of_terms() -> None:
    for wrong in ({"spans": ((0, 1), None)}, {"attached": frozenset({1})}):
        with pytest.raises(ValueError, match="of terms that there are not"):
            Terms(required=(("Haus",),), **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "attached"),
    [
        ("Hello %s", []),
        ("The file%s is missing", [0]),
        ("the a%s, (%s) and '%s'", [0]),
        ("a test-%s and - %s", [0]),
        ("Value=-%d, foo::%s", [0, 1]),
    ],
)
def test_what_stands_right_after_a_word_is_attached(text: str, attached: list[int]) -> None:
    assert sorted(TermRules(keep=True).of(text).attached) == attached


def test_blanks_before_placeholders_stay(everyday: Translator) -> None:
    lines = {
        "Hello %s": "Hallo %s",
        "Open the file “%s”.": "Öffnen Sie die Datei „%s“.",
        "Page %d of %d": "Seite %d von %d",
    }
    results = everyday.translate(list(lines), terms=TermRules(keep=True))
    assert [result.text for result in results] == list(lines.values())


def test_a_placeholder_takes_the_place_of_what_the_model_makes_of_it(everyday: Translator) -> None:
    line = "Rename%(name)s failed"
    assert everyday.translate([line])[0].text == "Umbenennen%(n) ist fehlgeschlagen"
    (result,) = everyday.translate([line], terms=TermRules(keep=True))
    assert result.text == "Umbenennen%(name)s fehlgeschlagen"


def test_a_text_without_words_begins_with_its_prefix(everyday: Translator) -> None:
    (result,) = everyday.translate(["42"], prefixes=["Nummer"], terms=TermRules(keep=True))
    assert result.text.startswith("Nummer")
    assert "42" in result.text


def test_each_part_has_the_text_that_it_adds(everyday: Translator) -> None:
    """A ligature is spelt as two letters by the pieces, and stays as it is in the text."""
    line = "Open ﬁle.txt now. IT IS GOOD."
    (result,) = everyday.translate([line], terms=TermRules(keep=True), split=True)
    assert len(result.parts) == 2
    assert "ﬁle.txt" in result.parts[0].text
    assert result.parts[1].text.isupper()
    assert result.text == " ".join(part.text for part in result.parts)


@pytest.mark.parametrize(
    ("text", "decimal"),
    [("See https://example.com/a", "either"), ("one", "either"), ("1,250.50", "german")],
)
def test_a_text_with_words_or_a_number_to_rewrite_is_translated(text: str, decimal: str) -> None:
    assert not TermRules(keep=True, decimal=decimal).of(text).is_whole_text


def test_a_blank_line_stays_blank(everyday: Translator) -> None:
    results = everyday.translate(["", " \t"], terms=TermRules(keep=True))
    assert [result.text for result in results] == ["", ""]


@pytest.mark.parametrize("source", ["I saw %s.", "Hello {user}!", "The price is ${price} today."])
def test_no_signs_of_placeholders_are_added(everyday: Translator, source: str) -> None:
    rules = TermRules(keep=True)
    (result,) = everyday.translate([source], terms=rules)
    ((item, *_),) = rules.of(source).required
    assert result.text.count(item) == 1
    assert not set(result.text.replace(item, "")) & set("%{}$")
    assert "%" not in rules.of("I saw %s and a % of it.").stray  # the source has it outside


def test_a_text_with_more_terms_than_are_kept_is_named(caplog: pytest.LogCaptureFixture) -> None:
    rules = TermRules(keep=True)
    assert len(rules.of("See " + " ".join(f"%{n}" for n in range(1, 31))).required) == 30
    assert not caplog.messages
    assert len(rules.of("Look at " + " ".join(f"A-{n}00" for n in range(1, 32))).required) == 30
    assert caplog.messages == [
        "'Look at A-100 A-200 A-300 A-40'...: has 31 terms and items to keep: the first 30 are "
        "sure to come"
    ]


def test_signs_of_items_that_are_not_kept_stay_in_the_text() -> None:
    prices = " ".join(f"${n}" for n in range(100, 135))
    rules = TermRules(keep=True)
    assert "$" in rules.of("It is $100.").stray
    assert "$" not in rules.of(f"They are {prices}.").stray


def test_many_long_terms_take_little_memory() -> None:
    glossary = Glossary([(f"w{n}", ["Wort " * 40 + "Haus"]) for n in range(30)])
    forms = TermRules(glossary).of(" ".join(f"w{n}" for n in range(30))).required
    assert len(forms) == 30
    assert sum(len(form) for own in forms for form in own) <= 20_000
    (alone,) = TermRules(glossary).of("w1").required
    assert len(alone) > len(forms[1])


def test_kinds_are_those_of_the_spans() -> None:
    assert Terms((("12",),), spans=((0, 2),), kinds=("number",)).kinds == ("number",)
    with pytest.raises(ValueError, match="kinds must be as many as spans"):
        Terms((("12",),), spans=((0, 2),), kinds=("number", "date"))


def test_a_wrong_kind_of_glossary_is_named() -> None:
    with pytest.raises(TypeError, match=r"must be a Glossary, not str: see Glossary\.load"):
        TermRules("terms.tsv")  # type: ignore[arg-type]


def test_what_is_forbidden_is_neither_kept_nor_a_prefix_nor_a_term(everyday: Translator) -> None:
    rules = TermRules(keep=True, forbidden=("info@example.com", "Ich"))
    assert rules.of("Write to info@example.com or a@b.de.").required == (("a@b.de",),)
    rules = TermRules(Glossary({"house": ["Gebäude", "Bau"]}), forbidden=("Gebäude",))
    (forms,) = rules.of("I see the house.").required
    assert "Bau" in forms
    assert not any("Gebäude" in form for form in forms)  # no *Gebäudes* either
    rules = TermRules(keep=True, forbidden=("info@example.com", "Ich"))
    with pytest.raises(ValueError, match="'Ich' is a prefix and has a forbidden phrase"):
        everyday.translate(["I see the house."], prefixes=["Ich"], terms=rules)


@pytest.mark.parametrize(
    ("text", "translation", "rest"),
    [
        ("Pay $10 and 10 euros.", "Zahlen Sie 10 $ und 10 Euro.", "Zahlen Sie und Euro."),
        ("Pay $10 and 10 euros.", "Zahlen Sie 10 und 10 Euro.", None),
        ("x=-5 and y=-7.", "x=-5 und y=-7.", "x= und y= ."),
        ("It is 3 or 4.", "Es ist drei oder vier.", "Es ist oder ."),
        ("It has 5 of 10.", "Es hat 5 von 5-10.", None),
        ("It has 5 of 10.", "Es hat 3,5 von 10.", None),
        ("Open a.txt, then b.txt.", "Öffnen Sie a.txt, dann c.txt.", None),
        ("a 5-year-old", "ein 5-jähriger", "ein jähriger"),
        ("a 3D printer", "ein 3D-Drucker", "ein -Drucker"),
        ("the top-10 list", "die Top-10-Liste", "die Top- -Liste"),
        ("the top-10 list", "die Liste der 110", None),
        ("5 apples on page 5", "fünf Äpfel auf Seite 5", "Äpfel auf Seite"),
        ("page 5 has 5 apples", "Seite 5 hat fünf Äpfel", "Seite hat Äpfel"),
        ("SET {MAX} TO 10!", "Setze {max} auf 10!", None),
    ],
)
def test_the_rest_of_a_translation_beside_what_is_kept(
    everyday: Translator, text: str, translation: str, rest: str | None
) -> None:
    ((source,),) = everyday.plan([text], terms=TermRules(keep=True))
    assert source.terms is not None
    found = source.terms.rest_of(translation)
    assert (None if found is None else " ".join(found.split())) == rest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Chapters 1, 2, 3, 4, 5, 6 and 7 are new.", "1, 2, 3, 4, 5, 6 und 7"),
        ("Error 0x80070005: Access denied (code=-13).", "(code=-13)"),
        ("Pay $10 and 10 euros.", "10 $ und 10 Euro"),
        ("Cats &amp; dogs, &lt;%s&gt; and %d items.", "&amp; Hunde, &lt;%s&gt; und %d"),
    ],
)
def test_what_the_model_copies_by_itself_stays(
    everyday: Translator, text: str, expected: str
) -> None:
    """Terms are no reason for another translation where nothing is missing."""
    rules = TermRules(keep=True)
    (result,) = everyday.translate([text], split=True, terms=rules)
    assert expected in result.text
    assert result == everyday.translate([text], split=True)[0]


def test_a_sentence_in_capitals_has_its_items_in_small_letters_at_first(
    everyday: Translator,
) -> None:
    ((source,),) = everyday.plan(["SET {MAX} TO 10!"], split=True, terms=TermRules(keep=True))
    assert source.terms is not None
    assert source.terms.rest_of("Setze {max} auf 10!", any_case=True) == "Setze   auf  !"
    (result,) = everyday.translate(["SET {MAX} TO 10!"], split=True, terms=TermRules(keep=True))
    assert result.text == "SETZE {MAX} AUF 10!"


def test_other_hypotheses_change_nothing_of_the_best(everyday: Translator) -> None:
    """They are left out where they lack what is kept."""
    for text in ("I have a 3D printer.", "Twenty years ago it was colder (-9)."):
        (alone,) = everyday.translate([text], terms=TermRules(keep=True))
        (first,) = everyday.translate([text], terms=TermRules(keep=True), n_best=4)
        assert first.text == alone.text
        assert first.n_best[0] == alone.n_best[0]
        item = "3D" if "3D" in text else "9"
        assert all(item in other for other, _ in first.n_best)
