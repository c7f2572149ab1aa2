"""A run from its input to its output: divide, compute on Ray, check, give the output its name."""

import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from mt.corpora.files import Block, check_columns, find, survey
from mt.corpora.operations import Operation
from mt.corpora.output import Output
from mt.corpora.worker import BlockRecord
from mt.utils.checks import check_int
from mt.utils.json_io import parse_json
from mt.utils.line_io import BLOCK

MOST_ERRORS = 100  # bad rows with which a run still goes on

Progress = Callable[[int], object]  # called with a number of rows that are done
# What a ``Worker`` is made of beside its threads, and blocks -> their records as they come.
RunBlocks = Callable[[tuple[Any, ...], list[Block]], Generator[str, None, None]]


@dataclass
class Summary:
    """What a run did. ``errors`` are the bad rows; ``dropped`` counts rows by the rule broken.

    ``warnings`` counts what the translators of the actors warned of.
    """

    rows: int = 0  # of the input
    written: int = 0
    kept: int = 0  # rows that an interrupted run had done
    errors: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    errors_file: str | None = None
    warnings: int = 0
    first_warning: str = ""

    def add(self, part: BlockRecord) -> None:
        self.rows += part.rows_read
        self.written += part.rows
        self.errors += len(part.errors)
        self.dropped.update(part.dropped)
        self.warnings += part.warnings
        self.first_warning = self.first_warning or part.first_warning


def run_job(
    operation: Operation,
    inputs: str | Sequence[str],
    output: str,
    engine: RunBlocks,
    *,
    block_rows: int = BLOCK,
    max_errors: int = MOST_ERRORS,
    overwrite: bool = False,
    on_begin: Progress | None = None,
    on_progress: Progress | None = None,
) -> Summary:
    """Compute all rows of the input and write them in their order.

    ``inputs`` are files, folders or patterns, ``block_rows`` the rows computed together, and
    ``engine`` is ``mt.corpora.actors.Actors`` or another that computes blocks by a ``Worker``.
    ``on_begin`` gets the number of all rows, ``on_progress`` those that are done with a block. An
    interrupted run goes on where it stopped. Raises OSError or ValueError that says what is wrong,
    also for more than ``max_errors`` bad rows; what is done is then kept. ``overwrite`` replaces
    an output that is there, and begins anew where an interrupted run was another one.
    """
    check_int("block_rows", block_rows)
    check_int("max_errors", max_errors, 0)
    patterns = [inputs] if isinstance(inputs, str) else list(inputs)
    files = [path for pattern in patterns for path in find(pattern)]
    names = Counter(os.path.realpath(path) if os.path.exists(path) else path for path in files)
    if twice := [path for path, count in names.items() if count > 1]:
        raise ValueError(f"{twice[0]} comes twice in the input")
    place = Output(output, files, overwrite)
    for file in files:
        check_columns(file, operation.columns)
    with place.writing():
        contents = []
        blocks: list[Block] = []
        for file in files:
            contents.append(survey(file, block_rows, len(blocks)))
            blocks += contents[-1].blocks
        targets = place.targets(files, blocks)
        total = sum(content.rows for content in contents)
        named = [[f, c.rows, c.sha256] for f, c in zip(files, contents, strict=True)]
        place.begin(
            {
                **operation.identity,
                "block_rows": block_rows,
                "kind": place.kind,
                "input": named,
            }
        )
        if on_begin is not None:
            on_begin(total)
        worker = operation, place.parts_url, place.kind
        summary = Summary()
        parts = _compute(place, worker, blocks, engine, max_errors, on_progress, summary)
        if summary.rows != total or parts.keys() != set(range(len(blocks))):
            raise ValueError(f"{place.path}: {summary.rows:,} of {total:,} rows are done")
        place.complete(targets, parts)
    summary.errors_file = place.errors if summary.errors else None
    return summary


def _compute(
    place: Output,
    worker: tuple[Any, ...],
    blocks: Sequence[Block],
    engine: RunBlocks,
    max_errors: int,
    on_progress: Progress | None,
    summary: Summary,
) -> dict[int, BlockRecord]:
    """The parts of all blocks, by their numbers; the summary counts them."""
    parts: dict[int, BlockRecord] = {}

    def add(part: BlockRecord) -> None:
        if part.number in parts:  # computed twice, since an actor died after it had written it
            return
        parts[part.number] = part
        summary.add(part)
        if on_progress is not None:
            on_progress(part.rows_read)
        if summary.errors > max_errors:
            place.write_errors(parts)
            first = next(part.errors[0] for part in parts.values() if part.errors)
            raise ValueError(
                f"{summary.errors:,} bad rows, more than --max-errors {max_errors:,}; one is "
                f"{first['file']}, row {first['number']:,}: {first['reason']}; {place.errors} has "
                "all that are known"
            )

    for part in place.kept_parts():
        add(part)
    summary.kept = summary.rows
    if left := [block for block in blocks if block.number not in parts]:
        with closing(engine(worker, left)) as records:  # ends the actors, whatever comes
            for record in records:
                answer = parse_json(record)
                if "failure" in answer:
                    raise ValueError(answer["failure"])
                add(BlockRecord(**answer))
    return parts
