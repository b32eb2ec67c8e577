"""``reproduce``: the paper's comparison, from the cells to the page and the document."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..runs import RESULTS, short

if TYPE_CHECKING:
    from ..sweep import SweepResult

__all__ = ["reproduce"]

_DOCUMENT = RESULTS.parent / "docs" / "reproduction.md"
_HEAVY = "*-vgg16/*"  # 11 GB of memory each: one at a time


def reproduce(
    quick: Annotated[bool, typer.Option("--quick", help="Few steps and cells.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Cells at the same time; default: one per core.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Only cells whose key matches or contains this.")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Run nothing: page and document of what is there.")
    ] = False,
    document: Annotated[
        Path | None, typer.Option(help="The document to write; default: docs/reproduction.md.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where runs live.")] = RESULTS,
) -> int:
    """Run the paper's comparison, what is missing of it, and write what came out."""
    from ..reproduce import reproduction

    folder = results / "reproduce" / ("quick" if quick else "full")
    bad: dict[str, str] = {}
    if not report:
        bad = _run(reproduction(quick), folder, jobs, only)
    elif not (folder / "manifest.json").exists():
        raise UserError(f"{short(folder)}: nothing has run yet; make reproduce does")
    _write(folder, document or _DOCUMENT)
    return 2 if bad else 0


def _write(folder: Path, document: Path) -> None:
    from ..atomic import point
    from ..claims import claims
    from ..reproduction import Reproduction
    from ..reproduction_page import write_document, write_page, write_places
    from ..sweep_tables import remake_sweep

    found = Reproduction(remake_sweep(folder))
    for claim in claims(found):
        print(f"{claim.verdict:<13} {claim.claim}: {claim.ours} (wanted: {claim.wanted})")
    places = write_places(found, folder / "places.csv")
    page = write_page(found)
    write_document(found, document)
    point(folder.parent / "latest", folder.name)
    for name, path in (
        ("summary", folder / "summary.csv"), ("places", places), ("report", page),
        ("document", document),
    ):  # fmt: skip
        print(f"{name:<8} {short(path)}")


def _run(chosen: Any, folder: Path, jobs: int | None, only: str | None) -> dict[str, str]:
    """Run what is missing: heavy cells one by one first when there are several."""
    from rich.console import Console

    from ..progress import SweepProgress
    from ..sweep import plan, run_sweep

    command = shlex.join(["python", "-m", "experiments", *sys.argv[1:]])
    heavy = len(plan(chosen, only=_HEAVY))

    def part(**options: Any) -> SweepResult:
        with SweepProgress(Console(stderr=True)) as progress:
            return run_sweep(chosen, folder, progress=progress, command=command, **options)

    try:
        if only is None and heavy > 1:
            part(jobs=1, only=_HEAVY)
        return part(jobs=jobs, only=only).bad
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on: {command}", file=sys.stderr)
        raise typer.Exit(130) from None
