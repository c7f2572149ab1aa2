"""Plain text: each line is translated; blanks at its ends, tabs and line breaks stay."""

import re

from mt.documents.text_document import TextDocument, decode, text_pieces, write_plain

BREAKS = re.compile(r"([\t\n\v\f\r\x85\u2028\u2029]+)")


def read_txt(data: bytes) -> TextDocument:
    """Raises DocumentError for what is not UTF-8, UTF-16 or UTF-32."""
    text, encoding, mark = decode(data)
    document = TextDocument(encoding, mark)
    for stretch in BREAKS.split(text):
        if stretch.strip():
            document.parts += document.run(text_pieces(stretch), write_plain)
        else:
            document.parts.append(stretch)
    return document
