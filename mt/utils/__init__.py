"""What the other packages share and that knows nothing of translation."""

from pathlib import Path

BASE_STYLE = Path(__file__).with_name("base.css")  # of the server's page and mt.inspect's
