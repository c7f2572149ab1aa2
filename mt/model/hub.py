"""MarianMT models of the Hugging Face hub, by name: fetched and converted once, used offline.

A name is ORG/NAME or ORG/NAME@REVISION, where a revision is a branch, a tag or a commit. The files
lie in the hub's own cache, where other programs find them too. What was fetched is not trusted:
``mt.model.marian_import`` checks it.
"""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from mt.model import marian_import
from mt.model.marian_import import OPTIONAL, REQUIRED, WEIGHTS
from mt.utils.atomic import DISK_FULL, atomic_write
from mt.utils.checks import printable
from mt.utils.json_io import read_json
from mt.utils.locks import waiting_lock

log = logging.getLogger(__name__)

_NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w./-]*))?", re.ASCII)
TIMEOUT = 10  # seconds that the hub has to answer


def is_name(name: str) -> bool:
    """Whether this may be a model of the hub, and is no file or folder that was meant.

    What exists is always the path; so is what would lie in a folder that exists.
    """
    return bool(_NAME.fullmatch(name)) and not Path(name.partition("/")[0]).exists()


def converted_from_hub(name: str, cache: Path) -> Path:
    """The model folder in ``cache`` for a name of the hub; fetched if it is not there.

    Once it is there the hub is not asked again: removing the folder of the name fetches anew. Of
    several processes one fetches and converts, the others wait.
    Raises OSError or ValueError that says what is wrong and what to do.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name}: not a name of the hub, which is ORG/NAME or ORG/NAME@REVISION")
    repo, revision = match[1], match[2] or "main"
    folder = cache / repo.replace("/", "--")
    commit = folder / f"{quote(revision, safe='')}.commit"
    if out := _known(folder, commit):
        return out
    folder.mkdir(parents=True, exist_ok=True)
    with waiting_lock(folder / ".fetching", f"{name}: another process fetches it"):
        if out := _known(folder, commit):
            return out
        files = _fetch(name, repo, revision)
        out = folder / files.name
        if not out.is_dir():
            _convert(name, repo, files, out)
        atomic_write(commit, files.name)
    return out


def _known(folder: Path, commit: Path) -> Path | None:
    """The converted model of the commit that a file names, if both are there."""
    out = folder / commit.read_text("utf-8").strip() if commit.is_file() else folder
    return out if out != folder and out.is_dir() else None


def _convert(name: str, repo: str, files: Path, out: Path) -> None:
    from huggingface_hub.constants import ENDPOINT

    link = f"{ENDPOINT}/{repo}/tree/{files.name}"
    origin = {"imported from": repo, "commit": files.name, "link": link, "licence": "not stated"}
    try:
        marian_import.convert(files, out, origin=origin)
    except ValueError as error:
        raise ValueError(f"{name}: {str(error).replace(f'{files}/', '')}") from None
    config = read_json(out / "config.json")
    # A warning, because the terms bind who uses the model; it comes once.
    log.warning(
        f"{name} ({' to '.join(config['languages'])}) fetched from the hub, "
        f"licence {config['training']['licence']}, kept in {out}"
    )


def _fetch(name: str, repo: str, revision: str) -> Path:
    """The files of a MarianMT model, in a folder that has the commit's name.

    Without the hub, what its cache holds. Raises OSError or ValueError.
    """
    from huggingface_hub import HfApi, hf_hub_download

    try:
        with _explained(name, repo, revision):
            info = HfApi().model_info(repo, revision=revision, timeout=TIMEOUT)
    except ConnectionError:
        if folder := _cached(repo, revision):
            return folder
        raise
    there = {file.rfilename for file in info.siblings or ()}
    weights = [file for file in WEIGHTS if file in there][:1]
    lacks = [file for file in REQUIRED if file not in there]
    if lacks or not weights:
        lacking = lacks[0] if lacks else " nor ".join(WEIGHTS)
        raise ValueError(f"{name}: not a MarianMT model: it has no {lacking}")
    optional = [file for file in OPTIONAL if file in there]
    for file in (*REQUIRED, *optional, *weights):
        with _explained(name, repo, revision):
            path = Path(hf_hub_download(repo, file, revision=info.sha))
        if file == "config.json":  # a model of another kind may be a thousand times as large
            try:
                marian_import.read_config(path.parent)
            except ValueError as error:
                raise ValueError(f"{name}: {str(error).replace(f'{path.parent}/', '')}") from None
    return path.parent


def _cached(repo: str, revision: str) -> Path | None:
    """The folder of a whole model in the hub's cache, where ``hf download`` writes."""
    from huggingface_hub import try_to_load_from_cache

    def find(file: str) -> str | None:
        path = try_to_load_from_cache(repo, file, revision=revision)
        return path if isinstance(path, str) else None  # it may also be known not to exist

    paths = [find(file) for file in REQUIRED]
    if not all(paths) or not any(find(file) for file in WEIGHTS):
        return None
    return Path(str(paths[0])).parent


@contextmanager
def _explained(name: str, repo: str, revision: str) -> Iterator[None]:
    """Turn an error of the hub's client into an OSError of one line; ConnectionError in doubt."""
    from huggingface_hub.constants import ENDPOINT, HF_HUB_CACHE
    from huggingface_hub.utils import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    login = "log in with `hf auth login` or set HF_TOKEN"
    try:
        with warnings.catch_warnings():
            # The client only warns, and then fills the disk.
            warnings.filterwarnings("error", "Not enough free disk space", UserWarning)
            yield
    except GatedRepoError:
        raise PermissionError(
            f"{name}: access is restricted: ask for it at {ENDPOINT}/{repo}, then {login}"
        ) from None
    except RepositoryNotFoundError:
        raise FileNotFoundError(
            f"{name}: no such folder, and no such model at {ENDPOINT}; if it is private, {login}"
        ) from None
    except RevisionNotFoundError:
        raise FileNotFoundError(f"{name}: {repo} has no revision {revision!r}") from None
    except HFValidationError as error:
        raise ValueError(f"{name}: not a name of the hub: {printable(str(error), 200)}") from None
    except UserWarning as error:
        raise OSError(f"{name}: {printable(str(error))}") from None
    except Exception as error:  # the HTTP library, and so its errors, changes with the version
        if isinstance(error, OSError) and (error.filename or error.errno in DISK_FULL):
            error.filename = error.filename or HF_HUB_CACHE
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConnectionError(
            f"{name}: no such folder, and it cannot be fetched from {ENDPOINT}: "
            f"{printable(lines[0], 200)}; fetch it elsewhere with "
            f"`hf download {repo} --local-dir FOLDER`, and name that FOLDER"
        ) from None
