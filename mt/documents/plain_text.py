"""Plain text: each line is translated; blanks at its ends, tabs and line breaks stay."""

import re

from mt.documents.text_document import TextDocument, decode, text_pieces, write_plain

STRETCH = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+|[^\t\n\v\f\r\x85\u2028\u2029]+")


def read_txt(data: bytes) -> TextDocument:
    """Raises DocumentError for what is not UTF-8, UTF-16 or UTF-32."""
    text, encoding, mark = decode(data)
    document = TextDocument(encoding, mark)
    for stretch in STRETCH.findall(text):
        if stretch.isspace():
            document.parts.append(stretch)
        else:
            document.parts += document.run(text_pieces(stretch), write_plain)
    return document
