"""``profile``: measure what steps of a model cost here, and write it as a device profile."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from ..errors import UserError

__all__ = ["profile"]


def profile(
    task: Annotated[str, typer.Argument(help="A workload, such as resnet18 or fashion-cnn.")],
    device: Annotated[str, typer.Option(help="cpu, cuda, or estimate.")] = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="File to write; default: experiments/devices/<name>.yaml.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the profile; default: <task>-here.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Samples per step.")] = 32,
    side: Annotated[
        int | None, typer.Option(min=8, help="Pixels of square pictures; default: the task's own.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Steps that are timed.")] = 5,
    gpu: Annotated[str, typer.Option(help="estimate: the GPU's name.")] = "a V100-class GPU",
    tflops: Annotated[float, typer.Option(help="estimate: fp32, from its data sheet.")] = 15.7,
    reached: Annotated[float, typer.Option(help="estimate: share of it that is reached.")] = 0.5,
    memory: Annotated[float, typer.Option(help="estimate: memory bandwidth, GB/s.")] = 900.0,
) -> None:
    """Write the device profile of a workload: measured on this machine, or estimated."""
    from ..methods import task_names
    from ..mistakes import no_such
    from ..profiles import DEVICES

    if task not in (known := task_names()):
        raise UserError(no_such(task, known, "workload"))
    if device not in ("cpu", "cuda", "estimate"):
        raise UserError(f"--device: expected cpu, cuda or estimate; got '{device}'")
    if not 0 < reached <= 1:
        raise UserError(f"--reached: expected a share in (0, 1]; got {reached:g}")
    for option, value in (("--tflops", tflops), ("--memory", memory)):
        if not 0 < value < math.inf:
            raise UserError(f"{option}: expected a number above 0; got {value:g}")
    found = _profile(task, device, batch, side, repeats, (gpu, tflops, reached, memory))
    path = out or DEVICES / f"{name or f'{task}-here'}.yaml"
    text = yaml.safe_dump(found, sort_keys=False, default_flow_style=None, width=99)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
    compute_s = found["forward_s"] + found["backward_s"] + found["optimizer_s"]
    print(f"{found['description']}: {1e3 * compute_s:.1f} ms of compute a step ({found['kind']})")
    print(f"written to {path}; in a scenario: device: {path.stem}")


def _profile(
    task: str,
    device: str,
    batch: int,
    side: int | None,
    repeats: int,
    sheet: tuple[str, float, float, float],
) -> dict[str, Any]:
    from ..datasets import check
    from ..flops import Gpu
    from ..measure import estimated, measure

    if side is None:
        check(task)
    if device == "estimate":
        return estimated(task, batch, side, Gpu(*sheet))
    return measure(task, device, batch, side, repeats)
