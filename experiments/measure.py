"""Measure a device profile: what training steps of one model cost on this machine's hardware."""

from __future__ import annotations

import importlib
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import netsenseml

from .errors import UserError
from .flops import Gpu, curve_of, estimate, layer_macs
from .methods import is_adaptive

__all__ = ["estimated", "measure"]

_WARM_UP = 2


def _task(name: str) -> Any:
    return importlib.import_module(f"experiments.workloads.{name.replace('-', '_')}")


def _batch(task: Any, batch: int, side: int | None) -> tuple[Tensor, Tensor]:
    """Return inputs and targets: the task's own, or pictures of `side` pixels of random colour."""
    if side is None:
        data = task.prepare()
        inputs, targets = task.inputs(data.train_x[:batch]), data.train_y[:batch]
        return inputs, targets[: len(inputs)]
    noise = torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(0))
    return noise, torch.zeros(batch, dtype=torch.int64)


def _check_side(name: str, model: nn.Module, inputs: Tensor, side: int | None) -> None:
    """Refuse pictures that a model does not take: only trying tells."""
    if side is None:
        return
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(inputs[:1])
    except (IndexError, RuntimeError, TypeError, ValueError):
        raise UserError(
            f"--side {side}: {name} takes no coloured pictures of {side} x {side} pixels; "
            "without --side it gets its own inputs"
        ) from None
    model.train(training)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _times(
    model: nn.Module, loss: Callable[[], Tensor], device: torch.device, repeats: int
) -> dict[str, float]:
    """Return the median seconds of each part of a step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    parts: dict[str, list[float]] = {"forward_s": [], "backward_s": [], "optimizer_s": []}
    for step in range(_WARM_UP + repeats):
        optimizer.zero_grad()
        start = _now(device)
        value = loss()
        middle = _now(device)
        value.backward()
        late = _now(device)
        optimizer.step()
        end = _now(device)
        if step >= _WARM_UP:
            for key, seconds in zip(
                parts, (middle - start, late - middle, end - late), strict=True
            ):
                parts[key].append(seconds)
    return {key: round(statistics.median(values), 7) for key, values in parts.items()}


def _curve(
    model: nn.Module, loss: Callable[[], Tensor], device: torch.device
) -> list[list[float]]:
    """Return the backward curve: when, within the backward pass, each gradient was there."""
    parameters = list(model.parameters())
    ready: dict[int, float] = {}
    hooks = [
        p.register_post_accumulate_grad_hook(lambda _, at=at: ready.__setitem__(at, _now(device)))
        for at, p in enumerate(parameters)
    ]
    try:
        for _ in range(_WARM_UP + 1):
            value = loss()
            before = _now(device)
            value.backward()
    finally:
        for hook in hooks:
            hook.remove()
    # cost of a parameter: from the gradient before it, in the order in which they came
    costs, last = [0.0] * len(parameters), before
    order = sorted(ready, key=lambda at: ready[at])
    for at in order:
        costs[at], last = ready[at] - last, ready[at]
    arrived = [(float(parameters[at].numel()), costs[at]) for at in reversed(order)]
    return curve_of(arrived)


def _rates(
    model: nn.Module, loss_of: Callable[[nn.Module], Tensor], device: torch.device, repeats: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return bytes of gradient per second that each method's codec encodes and decodes."""
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", store=dist.HashStore(), rank=0, world_size=1
    )
    rates: tuple[dict[str, float], dict[str, float]] = ({}, {})
    try:
        # an adaptive method is charged as the codec that it chooses
        for method in (m for m in netsenseml.methods() if not is_adaptive(m)):
            ddp = DistributedDataParallel(model)
            state = netsenseml.register(ddp, method=method)
            seen: list[netsenseml.StepRecord] = []
            for _ in range(_WARM_UP + repeats):
                ddp.zero_grad()
                loss_of(ddp).backward()
                record = state.last_step
                assert record is not None
                seen.append(record)
            for into, field in zip(rates, ("encode_s", "decode_s"), strict=True):
                seconds = statistics.median(getattr(r, field) for r in seen[_WARM_UP:])
                if seconds > 0:
                    into[method] = float(f"{seen[-1].dense_bytes / seconds:.3g}")
            del ddp, state
    finally:
        dist.destroy_process_group()
    return ({"default": min(r.values()), **r} for r in rates)  # type: ignore[return-value]


def measure(
    name: str, device: str, batch: int, side: int | None = None, repeats: int = 5
) -> dict[str, Any]:
    """Return the profile of a task on this machine, as plain data.

    Parameters
    ----------
    name : str
        A task of `experiments.workloads`.
    device : {"cpu", "cuda"}
    batch : int
        Samples per step.
    side : int, optional
        Pixels of square random pictures; None takes the task's own inputs.
    repeats : int
        Steps that are timed; medians count.

    Raises
    ------
    UserError
        Without the device.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device; --device cpu measures this")
    place, task = torch.device(device), _task(name)
    torch.manual_seed(0)
    inputs, targets = (tensor.to(place) for tensor in _batch(task, batch, side))
    model = task.build_model().to(place)
    _check_side(name, model, inputs, side)

    def loss_of(module: nn.Module) -> Tensor:
        return task.loss(module(inputs), targets)

    times = _times(model, lambda: loss_of(model), place, repeats)
    curve = _curve(model, lambda: loss_of(model), place)
    encode, decode = _rates(model, loss_of, place, repeats)
    threads = torch.get_num_threads()
    what = torch.cuda.get_device_name() if place.type == "cuda" else _processor(threads)
    pixels = f" and {side} px" if side else ""
    return {
        "description": f"{name} at batch {len(inputs)}{pixels} on {what}",
        "kind": "measured",
        "source": f"measured with torch {torch.__version__}, medians of {repeats} steps",
        "formula": "Codecs: dense bytes over encode and decode seconds in a group of one rank.",
        "parameters": sum(p.numel() for p in model.parameters()),
        **times,
        "backward_curve": curve,
        "encode_bytes_per_s": encode,
        "decode_bytes_per_s": decode,
    }


def _processor(threads: int) -> str:
    names = []
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        pass
    return f"{names[0] if names else platform.processor() or 'a CPU'}, {threads} threads"


def estimated(name: str, batch: int, side: int | None, gpu: Gpu) -> dict[str, Any]:
    """Return the profile of a task from its operations and a data sheet, as plain data."""
    task = _task(name)
    model = task.build_model().eval()
    inputs, _ = _batch(task, 1, side)
    _check_side(name, model, inputs, side)
    pixels = f" and {side} px" if side else ""
    title = f"{name} at batch {batch}{pixels}"
    return estimate(title, layer_macs(model, inputs[:1]), batch, gpu)
