"""A hook of MkDocs: links from the pages to files of the repository also work in the built site.

Pages link to such a file as ``../results/x.json``, which works where the repository is read. MkDocs
knows only what is in ``docs/``. The hook adds each linked file to the site, in ``repository/``.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

LINK = re.compile(r"(?<=\]\()\.\./([^)#]+)")
FOLDER = "repository/"


def on_files(files: Files, *, config: Any) -> Files:
    root = Path(config["docs_dir"]).parent
    texts = [page.content_string for page in files.documentation_pages()]
    for path in sorted({path for text in texts for path in LINK.findall(text)}):
        if (root / path).is_file():  # MkDocs warns of a link without a file
            files.append(File.generated(config, FOLDER + path, abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    if page.file.src_uri.startswith(FOLDER):
        return markdown  # its own links go to files that lie where they do in the repository
    return LINK.sub(FOLDER + r"\1", markdown)
