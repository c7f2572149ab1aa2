"""Hostile documents: each ends in one line, or is read and stays as it is; soon, in little memory.

python scripts/check_documents.py FOLDER [--output results/hostile-documents.json]

Writes the documents of hostile_documents.py to FOLDER. A process for each reads it as
``mt.translate --input`` does, writes it with its own texts, which must give its bytes again, and
with others. Ends with status 1 if one of them takes more than 5 seconds of the processor or 500 MB,
ends in a traceback, or changes.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mt.utils import console

sys.path.append(str(Path(__file__).resolve().parent / "benchmarks"))  # for reporting.py

with console.exit_at_interrupt():
    from hostile_documents import CASES, Case
    from reporting import new_report, table, write_report

    from mt.documents.document import DocumentError, Segment
    from mt.documents.formats import TABLES, extension_of, read_document

MOST_SECONDS, MOST_MB = 5, 500
MAX_MEMORY = 4 * 2**30  # bytes of addresses; without a limit the machine might stand still
TIMEOUT = 120  # seconds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the documents are written")
    parser.add_argument("--output", help="JSON file for the figures")
    parser.add_argument("--read", action="store_true", help=argparse.SUPPRESS)  # of a process
    args = parser.parse_args(argv)
    if args.read:
        print(json.dumps(read(args.folder)))
        return 0
    failures: list[str] = []
    status = console.exit_status(
        "check_documents", lambda: failures.extend(check(args.folder, args.output))
    )
    return status or int(bool(failures))


def check(folder: Path, output: str | None) -> list[str]:
    """Check all documents, print a table, and return the names of those that fail."""
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    with console.progress_bar(len(CASES), "documents") as bar:
        for case in CASES:
            results.append(check_case(case, folder))
            bar.update(1)
    columns = ("document", "what is wrong", "result", "seconds", "MB")
    print(table(columns, [[row[key] for key in columns] for row in results]))
    failed = [row["document"] for row in results if row["failed"]]
    print(f"\n{len(results)} documents, {len(failed)} fail{': ' if failed else ''}"
          f"{', '.join(failed)}")  # fmt: skip
    write_report(output, new_report(
        documents=len(results), failed=failed,
        most_seconds=max(row["seconds"] for row in results),
        most_mb=max(row["MB"] for row in results), results=results,
    ))  # fmt: skip
    return failed


def check_case(case: Case, folder: Path) -> dict[str, Any]:
    path = folder / case.name
    path.write_bytes(case.build())
    row: dict[str, Any] = {"document": case.name, "what is wrong": case.wrong}
    try:
        done = subprocess.run(
            [sys.executable, __file__, str(path), "--read"],
            capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        row |= {"result": f"more than {TIMEOUT} s", "seconds": TIMEOUT, "MB": 0, "failed": True}
        return row
    if done.returncode:
        last = (done.stderr.splitlines() or [""])[-1]
        result = f"status {done.returncode}: {last[:100]}"
        return row | {"result": result, "seconds": 0, "MB": 0, "failed": True}
    row |= json.loads(done.stdout)
    row["failed"] |= row["seconds"] > MOST_SECONDS or row["MB"] > MOST_MB
    return row


def read(path: Path) -> dict[str, Any]:
    """What a process says of one document: the result, seconds of the processor, most memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    data = path.read_bytes()
    columns = ["en"] if extension_of(path.name) in TABLES else []
    begin, failed = time.process_time(), False
    try:
        document = read_document(path.name, data, columns)
        result = f"read: {len(document.segments):,} texts"
        if document.render(document.segments) != data:
            result, failed = "changed", True
        document.render([Segment(s.text[::-1], s.tags) for s in document.segments])
    except DocumentError as error:
        result = str(error)
        failed = not result.isprintable() or len(result) > 300
    seconds = round(time.process_time() - begin, 2)
    return {"result": result, "seconds": seconds, "MB": most_memory(), "failed": failed}


def most_memory() -> int:
    """The most memory of this process, in MB."""
    try:  # getrusage knows the most memory of the process that started this one, too
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1000
    except OSError:
        pass
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 10**6


if __name__ == "__main__":
    sys.exit(main())
