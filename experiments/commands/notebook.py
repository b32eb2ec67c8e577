"""``notebook``: execute results/analysis.ipynb on the latest results, without a browser."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.text import Text

from ..atomic import write_text
from ..errors import UserError
from ..runs import RESULTS, find_run, short

__all__ = ["notebook"]

_ROOT = Path(__file__).parent.parent.parent
NOTEBOOK = _ROOT / "results" / "analysis.ipynb"


def notebook(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Runs or sweeps; default: the latest of everything.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the executed notebook goes.")] = RESULTS
    / "notebook"
    / "analysis.ipynb",
    timeout_s: Annotated[int, typer.Option(min=1, help="For each of its cells.")] = 600,
) -> None:
    """Execute the notebook and keep it with its tables and pictures."""
    try:
        import nbformat
        from jupyter_client.manager import AsyncKernelManager
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    except ImportError as error:
        raise UserError(f"{error.name} is not installed; make notebook installs it") from None

    book = nbformat.read(NOTEBOOK, as_version=4)
    os.environ["NETSENSEML_RUNS"] = json.dumps([str(find_run(run)) for run in runs or []])
    here = {"metadata": {"path": str(_ROOT)}}
    with TemporaryDirectory(prefix="notebook-") as sockets:
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc")  # opens no port
        # beside this file lie the sockets; without it, where the caller is
        kernel.connection_file = str(Path(sockets) / "kernel.json")
        client = _stoppable(NotebookClient)(
            book, km=kernel, timeout=timeout_s, resources=here, shutdown_kernel="immediate"
        )
        try:
            client.execute(cleanup_kc=True)
        except (asyncio.CancelledError, DeadKernelError):
            if client.stopped:
                raise KeyboardInterrupt from None
            raise UserError(f"{short(NOTEBOOK)}: its kernel died") from None
        except CellExecutionError as error:
            # the kernel colours what it says, for a terminal
            last = Text.from_ansi(str(error)).plain.strip().splitlines()[-1]
            raise UserError(f"{short(NOTEBOOK)}: {last}") from None
        except CellTimeoutError:
            raise UserError(
                f"{short(NOTEBOOK)}: a cell took more than {timeout_s} s; --timeout-s allows more"
            ) from None
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, nbformat.writes(book))
    print(f"notebook {short(out)}")


def _stoppable(base: Any) -> Any:
    """Return the client class whose execution is cancelled by SIGINT and SIGTERM.

    Its own handlers end the kernel alone, so that a stop looks as if the kernel had died.
    """

    class Client(base):  # type: ignore[misc]
        stopped = False

        async def async_start_new_kernel(self, **options: Any) -> None:
            task = asyncio.current_task()
            assert task is not None

            def stop() -> None:
                self.stopped = True  # a cancelled cell is told as a dead kernel, too
                task.cancel()

            # the first moment after the client has set its handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stop)
            await super().async_start_new_kernel(**options)

    return Client
