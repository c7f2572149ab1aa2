"""What must be kept of a text: finds of every kind, forms of numbers, no find, and the time."""

import random
import time
from collections.abc import Callable

import pytest

from mt.inference.kept import KINDS, find_kept


@pytest.mark.parametrize(
    ("text", "expected"),  # what is found, with a bar between, all of it as it is
    [
        # URLs
        ("See https://example.com/a?b=1&c=(x), please.", "https://example.com/a?b=1&c=(x)"),
        ("See (http://example.com/a_(b)).", "http://example.com/a_(b)"),
        ("Is it www.example.org? Yes", "www.example.org"),
        ("at github.com/foo/bar-baz#L10: here", "github.com/foo/bar-baz#L10"),
        ("on example.com.", "example.com"),
        ("ftp://ftp.example.org/x.tar.gz!", "ftp://ftp.example.org/x.tar.gz"),
        ("ask mailto:info@example.com", "mailto:info@example.com"),
        ('<a "https://example.com/x">', "https://example.com/x"),
        ("http://localhost:8080/{id}/edit…", "http://localhost:8080/{id}/edit"),
        ("https://münchen.example/straße", "https://münchen.example/straße"),
        ("example.com:8080/x and test.co.uk", "example.com:8080/x|test.co.uk"),
        ("HTTPS://EXAMPLE.COM/A", "HTTPS://EXAMPLE.COM/A"),
        ("wss://example.com/ws;", "wss://example.com/ws"),
        # E-mail
        ("Write to anna.b+x@mail.example.co.uk!", "anna.b+x@mail.example.co.uk"),
        ("<info@example.com>, a_b@c-d.de.", "info@example.com|a_b@c-d.de"),
        ("user%x@example.museum", "user%x@example.museum"),
        ("Write to tom.o'neil@mail.co.uk.", "tom.o'neil@mail.co.uk"),
        ("'tom@mail.com' or 'it'", "tom@mail.com"),
        # Accounts, a wink
        ("@anna_k and @tom, hi @ home, @babel/core", "@anna_k|@tom"),
        ("a@b or @x.y", ""),
        ("Hello! ;) Hi ;-) you; (me) a;)", ";)|;-)"),
        # Files
        ("Open report.txt.", "report.txt"),
        ("Copy my_photo-1.JPG, data.tar.gz.", "my_photo-1.JPG|data.tar.gz"),
        ("Run ./src/main.py or ../x", "./src/main.py|../x"),
        ("in /usr/local/bin/ or /etc/hosts.", "/usr/local/bin/|/etc/hosts"),
        ("Edit ~/.bashrc and .gitignore.", "~/.bashrc|.gitignore"),
        ("src/mt/tags.py: it", "src/mt/tags.py"),
        ("C:\\Program Files\\App\\x.exe now", "C:\\Program Files\\App\\x.exe"),
        ("in C:\\\\Users\\\\Tom now", "C:\\\\Users\\\\Tom"),
        ("On D:\\ or \\\\server\\share\\a.doc.", "D:\\|\\\\server\\share\\a.doc"),
        ("$HOME/data/x.csv is it", "$HOME/data/x.csv"),
        ("Node.js with package.json", "Node.js|package.json"),
        # Code spans
        ("Use `pip install x` now.", "`pip install x`"),
        ("Use ``a ` b`` or ```x```!", "``a ` b``|```x```"),
        ("`%s` and `{x}` in `a.txt`", "`%s`|`{x}`|`a.txt`"),
        # Placeholders: Python
        ("Hello {user}, {0} {}!", "{user}|{0}|{}"),
        ("{0:.2f} {name!r:>10} {user.name} {items[0]}",
         "{0:.2f}|{name!r:>10}|{user.name}|{items[0]}"),
        ("f: {len(x) + 1}", "{len(x) + 1}"),
        ("%s is %(name)d or %(a_b)s.", "%s|%(name)d|%(a_b)s"),
        ("%r, %.3f%%", "%r|%.3f%%"),
        # C
        ("%5.2f %ld %-10s %05d %zu %lld %x", "%5.2f|%ld|%-10s|%05d|%zu|%lld|%x"),
        ("%1$s of %2$d, 100%%", "%1$s|%2$d|100|%%"),
        ("Copied 20 %s files, 50 %d more", "20|%s|50|%d"),
        ("%dpx, %dx%d, %dmin, %s's", "%d|%d|%d|%d|%s"),
        ("%*d %.*s %@", "%*d|%.*s|%@"),
        ("%Y-%m-%d %H:%M, %d/%d", "%Y-%m-%d|%H:%M|%d/%d"),
        # ICU and others with braces
        ("{count, plural, one {# file} other {# files}} left",
         "{count, plural, one {# file} other {# files}}"),
        ("{n, number} {d, date, long} {g, select, other {x}}",
         "{n, number}|{d, date, long}|{g, select, other {x}}"),
        ("Hi {{ name }}, {{#if x}} {% if a %}", "{{ name }}|{{#if x}}|{% if a %}"),
        ("Ruby #{x} and %{count}", "#{x}|%{count}"),
        ("{a {b} {c", "{b}"),
        # Qt
        ("%1 of %2 in %L3, %n files, %Ln", "%1|%2|%L3|%n|%Ln"),
        ("%1%2 and %%%d, file%d", "%1%2|%%%d|%d"),
        # Shells
        ("$HOME or ${HOME} or $my_var.", "$HOME|${HOME}|$my_var"),
        ("%PATH% and %APPDATA%\\x", "%PATH%|%APPDATA%"),
        # Plain numbers
        ("in 2019, 42 men", "2019|42"),
        ("18+, 007 and 747's", "18|007|747"),
        ("the year 2019.Then 30", "2019|30"),
        # Numbers that name something
        ("page 3, Chapter 5, No. 7", "3|5|7"),
        ("version 3.10 and Python 3.11", "3.10|3.11"),
        ("Section 2.4 (Fig. 3)", "2.4|3"),
        ("with Windows 7 and the Terminal 2", "7|2"),
        ("§ 5", "5"),
        # A quarter of a year, not of an hour
        ("last quarter to 50 million euros", "50"),
        ("in the first quarter after 20 years", "20"),
        # Compounds whose words are translated
        ("mid-2020, pre-2000, A4-sized", "2020|2000|A4"),
        # Codes
        ("v2.3.1, 1.2.3 and 192.168.0.1:80.", "v2.3.1|1.2.3|192.168.0.1:80"),
        ("2001:db8:f7e8:a3f:4883::7, ::1 and fe80::1.", "2001:db8:f7e8:a3f:4883::7|::1|fe80::1"),
        ("the B-52, an iPhone12, H2O, COVID-19", "B-52|iPhone12|H2O|COVID-19"),
        ("RTX4090 (1080p, 3D, 4K)", "RTX4090|1080p|3D|4K"),
        ("order #12345, AB-1234/56", "#12345|AB-1234/56"),
        ("x86_64, sha a3f5c9d0", "x86_64|a3f5c9d0"),
        ("550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"),
        ("00:1B:44:11:3A:B7", "00:1B:44:11:3A:B7"),
        ("on 2024-03-15 or 2024-03-15T10:00:00Z.", "2024-03-15|2024-03-15T10:00:00Z"),
        ("15.03.2024, 03/04/2024, a/03/15/2024", "15.03.2024|03/04/2024|a/03/15/2024"),
        ("v2.0-beta, v1.5-alpha", "v2.0-beta|v1.5-alpha"),
        ("at 10:30, 24/7, 1/2, 3:2", "10:30|24/7|1/2|3:2"),
        ("1 1/2 cups and 20 24/7 shops", "1 1/2|20|24/7"),
        ("802.11ac, Wi-Fi", "802.11ac"),
        ("Python 3.10/3.11", "3.10/3.11"),
        ("Photo.Jpg and Setup.Exe", "Photo.Jpg|Setup.Exe"),
        ("I am tired.Go home.Text me, door.Lock it", ""),
        ("1920x1080, 1920×1080, 10^6, 2+2=4", "1920x1080|1920×1080|10^6|2+2=4"),
        ("10⁻³ m and x·10⁶, y⁻¹", "10⁻³|10⁶"),
        ("C++17, 1'000, 1.000.000", "C++17|1'000|1.000.000"),
        ("my_var, snake_case_name", "my_var|snake_case_name"),
        ("MP3's and the 747-8F", "MP3|747-8F"),
        # Phone numbers, IBANs, cards
        ("Call +49 30 1234567 now", "+49 30 1234567"),
        ("(030) 123-4567 or 030/1234567", "(030) 123-4567|030/1234567"),
        ("+1 (555) 123-4567.", "+1 (555) 123-4567"),
        ("+49 (0)30 123 45-67, +4930123456", "+49 (0)30 123 45-67|+4930123456"),
        ("DE89 3704 0044 0532 0130 00 is it", "DE89 3704 0044 0532 0130 00"),
        ("GB29NWBK60161331926819", "GB29NWBK60161331926819"),
        ("FR14 2004 1010 0505 0001 3M02 606", "FR14 2004 1010 0505 0001 3M02 606"),
        ("4111 1111 1111 1111", "4111 1111 1111 1111"),
        ("Cats &amp; &#39;x&#x27; &lt;%s&gt; AT&T; a & b;", "&amp;|&#39;|&#x27;|&lt;%s&gt;"),
        # The longest of several finds
        ("https://example.com/a.txt?x=%20y&q={z}", "https://example.com/a.txt?x=%20y&q={z}"),
        ("report_{date}_v2.txt", "report_{date}_v2.txt"),
        ("`See https://example.com/ 5`", "`See https://example.com/ 5`"),
        # Nothing
        ("", ""),
        ("No word of letters, he/she and/or it; e.g. this, etc.", ""),
        ("End.Then we go. Wait... What?!", ""),
        ("{this is prose} and {red, green}", ""),
        ("50 or so", "50"),
        ("Don't @ me, it's #great & _good_ (a+b)", ""),
        ("`open and ``more", ""),
        ("I am. We're www... A % of it, %discount", ""),
        ("the m², ½ and 漢字 Ⅻ", ""),
        ("a:b C: \\ / // . - $ $$ {", ""),
        ("Mr. A. Smith-Jones, U.S. Army", ""),
    ],
)  # fmt: skip
def test_what_stays_as_it_is(text: str, expected: str) -> None:
    items = find_kept(text)
    assert [text[kept.start : kept.end] for kept in items] == expected.split(
        "|" if expected else None
    )
    assert all(kept.forms == (text[kept.start : kept.end],) for kept in items)


@pytest.mark.parametrize(
    ("text", "part", "kind", "forms"),
    [
        ("cost 1,250.50 now", "1,250.50", "number", "1.250,50|1,250.50"),
        ("about 3.5 litres", "3.5", "number", "3,5|3.5"),
        ("1,000 men", "1,000", "number", "1.000|1,000"),
        ("1,234,567 men", "1,234,567", "number", "1.234.567|1,234,567"),
        ("$5.99 each", "$5.99", "number",
         "5,99 $|5,99 Dollar|5.99 $|5.99 Dollar|5,99$|5.99$|$5,99|$5.99"),
        ("15 €", "15 €", "number", "15 €|15 Euro|15€|€15"),
        ("£3!", "£3", "number", "3 £|3 Pfund|3£|£3"),
        ("5 kg of it", "5 kg", "number", "5 kg|5kg"),
        ("7 °F", "7 °F", "number", "7 °F|7°F"),
        ("a 20% rise", "20%", "number", "20 %|20%"),
        ("about .5 litres", ".5", "number", "0,5|.5"),
        ("3.5 % of it", "3.5 %", "number", "3,5 %|3.5 %|3,5%|3.5%"),
        ("at -5°C", "-5°C", "number", "-5 °C|−5 °C|–5 °C|-5°C|−5°C|–5°C"),
        ("at −2.5 degrees", "−2.5", "number", "-2,5|−2,5|–2,5|-2.5|−2.5|–2.5"),
        ("(-3)", "-3", "number", "-3|−3|–3"),
        ("5kg", "5kg", "number", "5kg|5 kg"),
        ("2.5km away", "2.5km", "number", "2,5km|2,5 km|2.5km|2.5 km"),
        ("100km/h", "100km/h", "number", "100km/h|100 km/h"),
        ("10s", "10s", "number", "10s|10 s"),
        ("pages 10-20", "10-20", "number", "10-20|10–20"),
        ("from 1914–1918", "1914–1918", "number", "1914–1918|1914-1918"),
        ("1.5-2 km", "1.5-2", "number", "1,5-2|1,5–2|1.5-2|1.5–2"),
        ("a 2.5-hour walk", "2.5", "number", "2,5|2.5|2,5-|2.5-"),
        ("a 5-year-old boy", "5", "number", "5|5-"),
        ("It's half past 5.", "half past 5", "time", "halb sechs|Halb sechs|5:30|5.30"),
        ("Half past 12!", "Half past 12", "time", "halb eins|Halb eins|12:30|12.30"),
        ("-€1 million", "-€1 million", "number",
         "-1 Million Euro|-1 Million €|-1 Mio. Euro|-1 Mio. €"),
        ("at quarter to 1", "quarter to 1", "time",
         "Viertel vor eins|viertel vor eins|12:45|12.45"),
        ("at quarter past 7.", "quarter past 7", "time",
         "Viertel nach sieben|viertel nach sieben|7:15|7.15"),
        ("for $50+ a day", "$50+", "number", "50+ $|50+ Dollar|50+$|$50+"),
        ("It is $5++.", "$5", "number", "5 $|5 Dollar|5$|$5"),
        ("It is $-45.", "$-45", "number", "-45 $|-45 Dollar|-45$"),
        ("It is -€1.5.", "-€1.5", "number",
         "-1,5 €|-1,5 Euro|-1.5 €|-1.5 Euro|-1,5€|-1.5€"),
        ("+£3 million", "+£3 million", "number",
         "+3 Millionen Pfund|+3 Millionen £|+3 Mio. Pfund|+3 Mio. £"),
        ("about $-2k", "$-2k", "number", "-2.000 $|-2.000 Dollar|-2 Tausend $|-2 Tausend Dollar"
         "|-2 Tsd. $|-2 Tsd. Dollar|-2k $|-2k Dollar|-2.000$|-2 Tausend$|-2 Tsd.$|-2k$"),
        ("from $5-$10", "$5-$10", "number", "5-10 $|5-10 Dollar|5–10 $|5–10 Dollar|5 bis 10 $"
         "|5 bis 10 Dollar|5-10$|5–10$|5 bis 10$|$5-10|$5–10|$5 bis 10|$5-$10"),
        ("He is 5'11\".", "5'11\"", "number", "5'11\""),
        ("a 27\" screen", '27"', "number", '27"'),
        ('"buy 270"', "270", "number", "270"),
        ('a 5\'11" and 27.5" one', '5\'11"', "number", '5\'11"'),
        ('a 5\'11" and 27.5" one', '27.5"', "number", '27,5"|27.5"'),
        ('He: "I\'m 5\'11", ok.', "5'11", "number", "5'11"),
        ("„in 270“, 270", "270", "number", "270"),
        ("I have 3 apples", "3", "number", "3|drei|Drei"),
        ("12 men", "12", "number", "12|zwölf|Zwölf"),
        ("It was 7.", "7", "number", "7|sieben|Sieben"),
        ("Then 3 came", "3", "number", "3|drei|Drei"),
        ("I saw. Buy 3 now", "3", "number", "3|drei|Drei"),
        ("5 million", "5", "number", "5|fünf|Fünf"),
        ("only 1 dog", "1", "number",
         "1|ein|Ein|eine|Eine|einen|Einen|einem|Einem|einer|Einer|eines|Eines|eins|Eins"),
        ("the 3rd time", "3rd", "ordinal",
         "3.|dritte|dritten|dritter|drittes|drittem|Dritte|Dritten|Dritter|Drittes|Drittem|3"),
        ("a 1st try", "1st", "ordinal",
         "1.|erste|ersten|erster|erstes|erstem|Erste|Ersten|Erster|Erstes|Erstem|1"),
        ("the 21st century", "21st", "ordinal", "21.|21"),
        ("the 19th-century house", "19th", "ordinal", "19.|19"),
        ("1,000th", "1,000th", "ordinal", "1.000.|1,000.|1.000|1,000"),
        ("the 1990s", "1990s", "ordinal", "1990er|1990ern|1990er-Jahre|1990er-Jahren|1990s|1990"),
        ("the mid-80s", "80s", "ordinal", "80er|80ern|80er-Jahre|80er-Jahren|80s|80"),
        ("at 3 pm today", "3 pm", "time", "15|3"),
        ("at 3 p.m. today", "3 p.m.", "time", "15|3"),
        ("at 11PM", "11PM", "time", "23|11"),
        ("at 9 am", "9 am", "time", "9"),
        ("at 09:05 a.m.", "09:05 a.m.", "time", "9:05|9.05|09:05|09.05"),
        ("at 3:30 pm", "3:30 pm", "time", "15:30|15.30|3:30|3.30"),
        ("12 pm", "12 pm", "time", "12"),
        ("12 am", "12 am", "time", "0|24"),
        ("12:29 a.m.", "12:29 a.m.", "time", "0:29|0.29"),
        ("12:29 pm", "12:29 pm", "time", "12:29|12.29"),
        ("at 2-3 p.m. today", "2-3 p.m.", "time", "14–15|14-15|14 bis 15|2-3 p.m."),
        ("open 9am – 5pm", "9am – 5pm", "time", "9–17|9-17|9 bis 17|9am – 5pm"),
        ("11-1 PM", "11-1 PM", "time", "11–13|11-13|11 bis 13|11-1 PM"),
        ("12–3 pm", "12–3 pm", "time", "12–15|12-15|12 bis 15|12–3 pm"),
        ("8 p.m.-12 a.m.", "8 p.m.-12 a.m.", "time", "20–24|20-24|20 bis 24|8 p.m.-12 a.m."),
        ("2:30 pm-4 pm", "2:30 pm-4 pm", "time",
         "14:30–16|14:30-16|14:30 bis 16|14:30–16:00|14:30-16:00|14:30 bis 16:00|2:30 pm-4 pm"),
        ("20m away", "20m", "number", "20m|20 m"),
        ("gave 4.5/5 stars", "4.5/5", "number", "4,5/5|4.5/5"),
        ("gave 4.5/5.5 stars", "4.5/5.5", "number", "4,5/5,5|4.5/5.5"),
        ("a 3.5x4m room", "3.5x4m", "number", "3,5x4m|3.5x4m"),
        ("is 2.5x faster", "2.5x", "number", "2,5x|2,5 x|2.5x|2.5 x"),
        ("on 3/15/2024", "3/15/2024", "date", "15.03.2024|15.3.2024"),
        ("on 15/11/2024", "15/11/2024", "date", "15.11.2024"),
        ("on 13/13/2024", "13/13/2024", "identifier", "13/13/2024"),
        ("€276 million", "€276 million", "number",
         "276 Millionen Euro|276 Millionen €|276 Mio. Euro|276 Mio. €"),
        ("£1 billion", "£1 billion", "number",
         "1 Milliarde Pfund|1 Milliarde £|1 Mrd. Pfund|1 Mrd. £"),
        ("We won 9-5.", "9-5", "number", "9:5"),
        ("The score was 3–1 at half-time", "3–1", "number", "3:1"),
        ("They beat us 2-0 yesterday", "2-0", "number", "2:0"),
        ("We lost 3-5 kilos", "3-5", "number", "3-5|3–5"),
        ("The path leads 3-5 in", "3-5", "number", "3-5|3–5"),
        ("It ended 1945-1946.", "1945-1946", "number", "1945-1946|1945–1946"),
        ("They won 16.5-11.5.", "16.5-11.5", "number",
         "16,5-11,5|16,5–11,5|16.5-11.5|16.5–11.5"),
        ("a US$5 million house", "$5", "number", "5 $|5 Dollar|5$|$5"),
        ("on 3 March 1987", "3", "date", "3"),
        ("March 3, 1987", "3", "date", "3"),
        ("March 3, 1987", "1987", "number", "1987"),
        ("on the 3rd of May", "3rd", "date", "3"),
        ("on Sept. 05", "05", "date", "5|05"),
        ("Dec 24th", "24th", "date", "24"),
        ("It is -20 km away.", "-20 km", "number",
         "-20 km|−20 km|–20 km|-20km|−20km|–20km"),
        ("x=-5 and", "-5", "number", "-5|−5|–5"),
        ("(code:-13)", "-13", "number", "-13|−13|–13"),
        ("it returns (-1) then", "-1", "number", "-1|−1|–1"),
        ("it has [1,-2] in it", "-2", "number", "-2|−2|–2"),
        # Where digits are listed or repeat a word, a word is no form of them.
        ("ten (10) apples", "10", "number", "10"),
        ("1, 2 and 3 apples", "1", "number", "1"),
        ("1, 2 and 3 apples", "2", "number", "2"),
        ("1, 2 and 3 apples", "3", "number", "3"),
        ("3 or 4 days", "4", "number", "4|vier|Vier"),
        ("-5% of it", "-5%", "number", "-5 %|−5 %|–5 %|-5%|−5%|–5%"),
    ],
)  # fmt: skip
def test_the_forms_of_numbers(text: str, part: str, kind: str, forms: str) -> None:
    items = {text[kept.start : kept.end]: kept for kept in find_kept(text)}
    assert items[part].kind == kind
    assert items[part].forms == tuple(forms.split("|"))


@pytest.mark.parametrize(
    ("text", "german", "as_written"),
    [
        ("1,250.50", "1.250,50", "1,250.50"),
        (".5", "0,5", ".5"),
        ("3", "3|drei|Drei", "3"),
        ("3rd",
         "3.|dritte|dritten|dritter|drittes|drittem|Dritte|Dritten|Dritter|Drittes|Drittem|3",
         "3.|3"),
        ("1.5-2.5", "1,5-2,5|1,5–2,5", "1.5-2.5|1.5–2.5"),
        ("2.5kg", "2,5kg|2,5 kg", "2.5kg|2.5 kg"),
        ("version 2.5", "2.5", "2.5"),
        ("1.2.3", "1.2.3", "1.2.3"),
        ("03/15/2024", "15.03.2024|15.3.2024", "03/15/2024"),
        ("led 3-1", "3:1", "3-1|3–1"),
        ("€3 million", "3 Millionen Euro|3 Millionen €|3 Mio. Euro|3 Mio. €",
         "3 €|3 Euro|3€|€3"),
    ],
)  # fmt: skip
def test_how_decimals_are_to_be_written(text: str, german: str, as_written: str) -> None:
    assert find_kept(text, decimal="german")[0].forms == tuple(german.split("|"))
    assert find_kept(text, "as written")[0].forms == tuple(as_written.split("|"))


def test_unknown_decimals_are_refused() -> None:
    with pytest.raises(ValueError, match="decimal is 'french'"):
        find_kept("1.5", decimal="french")


UNITS = [
    *"a1.{}`%$/\\+(@#-_~é漢'[:",
    *("1 ", "3 ", "1,", "1.", "a1-", "-aaa", "5-aaa-", "{}", "{a}", "{a, plural,", "`` ", "` `"),
    *("%%", "$a", "a/", "./", "C:\\", "C:\\a ", "\\\\a", "+1", "+1 ", "+1-", "(12)", "012 345 "),
    *("a@", "a@a.", "a.", "a.com", "http://", "http://a)", "www.", "#1", "1:", "1–", "AB12 ", "%1"),
    *("AB12 1234 ", "1st ", "3 pm ", "March 3 ", "1-1 ", "x_", "%(", "%(a", "%a-", "- ", "1kg "),
    *("9" * 90 + "a+", "\u0660", "/" + "a" * 3_999 + "{"),
]  # fmt: skip


@pytest.mark.parametrize("part", range(6))
def test_hostile_text_takes_linear_time(part: int) -> None:
    """Four times the text takes less than nine times the time; with squares it would be sixteen."""
    rng = random.Random(part)
    texts = [unit * (8_000 // len(unit)) for unit in UNITS[part::6]]
    letters = "{}`%$/\\+-@.:#()a1A Z_,'é3pm"
    texts += ["".join(rng.choices(rng.sample(letters, 6), k=8_000)) for _ in range(4)]
    for text in texts:
        assert any(is_linear(text) for _ in range(5)), text[:20]


def is_linear(text: str) -> bool:
    """One measurement, which other work on the machine can spoil."""
    short, long = process_time(find_kept, text[:2_000]), process_time(find_kept, text)
    return long < 9 * short + 0.02


def process_time(function: Callable[[str], object], text: str) -> float:
    """Seconds of the processor."""
    begin = time.process_time()
    function(text)
    return time.process_time() - begin


def test_finds_are_in_order_and_do_not_overlap() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        text = "".join(rng.choices(UNITS, k=rng.randrange(12)))
        end = 0
        for kept in find_kept(text):
            assert end <= kept.start < kept.end <= len(text)
            assert kept.kind in KINDS
            assert all(kept.forms)
            assert not text[kept.start : kept.end].isalpha()
            end = kept.end


@pytest.mark.parametrize(
    ("text", "source", "first"),
    [
        ("It costs $5/month.", "$5", "5 $"),
        ("We raised $1.5M.", "$1.5M", "1,5 Millionen $"),
        ("Of 20k users", "20k", "20k"),
        ("It costs $20k.", "$20k", "20.000 $"),
        ("About €2bn.", "€2bn", "2 Milliarden €"),
        ("I have 1 000 000 dollars.", "1 000 000", "1 000 000"),
        ("I have 12\u202f500 dollars.", "12\u202f500", "12\u202f500"),
        ("€1 200 000 now", "€1 200 000", "1 200 000 €"),
    ],
)
def test_short_and_grouped_numbers(text: str, source: str, first: str) -> None:
    [kept] = find_kept(text)
    assert (text[kept.start : kept.end], kept.kind, kept.forms[0]) == (source, "number", first)


@pytest.mark.parametrize(
    ("decimal", "forms"),
    [("as written", ("1 000 000",)), ("german", ("1.000.000", "1000000"))],
)
def test_groups_are_written_as_one_wishes(decimal: str, forms: tuple[str, ...]) -> None:
    assert find_kept("I have 1 000 000 dollars.", decimal)[0].forms == forms


@pytest.mark.parametrize("text", ["Open 127.0.0.1/admin now", "See 2024/report", "number 12/kg"])
def test_a_number_before_a_slash_is_a_rate_after_a_currency_alone(text: str) -> None:
    [kept] = find_kept(text)
    assert "/" in text[kept.start : kept.end]


@pytest.mark.parametrize(
    "text",
    ["It has 10 000 pages", "Call 555 123 4567", "1 000 000-5", "page 123 456 789", "9-1 000 000"],
)
def test_numbers_in_a_row_may_be_several(text: str) -> None:
    assert len(find_kept(text)) > 1


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("for $1.5m", "1,5 Millionen $"),
        ("for €20b", "20 Milliarden €"),
        ("for £20K", "20.000 £"),
    ],
)
def test_short_amounts_are_no_measures(text: str, form: str) -> None:
    (kept,) = find_kept(text)
    assert kept.forms[0] == form
    assert not [form for form in kept.forms if form.endswith((" m", " b", "K"))]
