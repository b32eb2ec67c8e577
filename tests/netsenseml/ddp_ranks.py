"""Runs a function on N real gloo ranks in processes of their own, with a hard time limit."""

from __future__ import annotations

import faulthandler
import io
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch._dynamo", "torch.nn.parallel", "netsenseml.hooks"])


class RankFailed(AssertionError):
    """A rank raised or did not answer in time."""


def run_ranks(
    function: Callable[..., Any], world: int, *arguments: Any, limit_s: float = 240.0
) -> list[Any]:
    """``[function(rank, world, *arguments) for every rank]``, all ranks running at once.

    The process group (gloo, a file as its store) is the default group inside.
    """
    outcomes = run_ranks_raw(function, world, *arguments, limit_s=limit_s)
    for rank, (good, value) in enumerate(outcomes):
        if not good:
            raise RankFailed(f"rank {rank} of {world}:\n{value}")
    return [value for _, value in outcomes]


def run_ranks_raw(
    function: Callable[..., Any], world: int, *arguments: Any, limit_s: float = 240.0
) -> list[tuple[bool, Any]]:
    """Like :func:`run_ranks`, with (worked, result or traceback) of every rank."""
    with tempfile.TemporaryDirectory(prefix="netsenseml-ranks-") as folder:
        pipes, processes = [], []
        for rank in range(world):
            mine, theirs = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(
                target=_rank, args=(theirs, folder, limit_s, function, rank, world, arguments)
            )
            process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        try:
            return _collect(pipes, folder, limit_s)
        finally:
            for process in processes:
                process.join(timeout=5)
                if process.is_alive():
                    process.kill()
                    process.join()
                process.close()
            for pipe in pipes:
                pipe.close()


def _collect(pipes: list[Connection], folder: str, limit_s: float) -> list[tuple[bool, Any]]:
    outcomes: dict[int, tuple[bool, Any]] = {}
    while len(outcomes) < len(pipes):
        pending = [pipe for rank, pipe in enumerate(pipes) if rank not in outcomes]
        ready = wait(pending, timeout=limit_s)
        if not ready:
            silent = [rank for rank in range(len(pipes)) if rank not in outcomes]
            stacks = "".join(_stack(folder, rank) for rank in silent)
            raise RankFailed(f"no answer within {limit_s} s from ranks {silent}{stacks}")
        for pipe in ready:
            rank = pipes.index(pipe)  # type: ignore[arg-type]
            try:
                good, data = pipe.recv()  # type: ignore[union-attr]
            except EOFError:
                good, data = False, "the process died"
            value = torch.load(io.BytesIO(data), weights_only=False) if good else data
            outcomes[rank] = (good, value)
    return [outcomes[rank] for rank in range(len(pipes))]


def _stack(folder: str, rank: int) -> str:
    with open(f"{folder}/stack-{rank}") as stack:
        return f"\nrank {rank} stood at:\n{stack.read()}"


def _rank(
    pipe: Connection,
    folder: str,
    limit_s: float,
    function: Callable[..., Any],
    rank: int,
    world: int,
    arguments: tuple[Any, ...],
) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stack = open(f"{folder}/stack-{rank}", "w")  # noqa: SIM115 (open until the process ends)
    faulthandler.dump_traceback_later(0.9 * limit_s, file=stack)
    try:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
        )
        result = function(rank, world, *arguments)
        buffer = io.BytesIO()
        torch.save(result, buffer)
        pipe.send((True, buffer.getvalue()))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    pipe.close()
    os._exit(0)  # a broken process group must not delay the end
