"""What all codecs that send selected entries share."""

from __future__ import annotations

import math

import torch

from netsenseml.codecs.base import Job
from netsenseml.wire import SparseFormat

__all__ = ["add_at", "add_rows", "send_selected"]


def send_selected(
    accumulated: torch.Tensor,
    indices: torch.Tensor,
    peak: torch.Tensor,
    form: SparseFormat,
    payload: torch.Tensor,
) -> torch.Tensor:
    """Write the entries at ``indices`` to ``payload`` and take what was sent off them in place.

    Returns
    -------
    float tensor, shape (k,)
        What was sent, as the receivers read it.
    """
    values = take(accumulated, indices)
    sent = form.encode(payload, values, indices, peak)
    if accumulated.device.type == "cpu":
        accumulated.numpy()[indices.numpy()] = (values - sent).numpy()
    else:
        accumulated[indices] = values - sent
    return sent


def take(tensor: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """``tensor[indices]``; numpy's gather on the host."""
    if tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(tensor.numpy()[indices.numpy()])
    return tensor[indices]


def add_at(total: torch.Tensor, indices: torch.Tensor | None, values: torch.Tensor) -> None:
    """``total[indices] += values``, with all indices where None; no index comes twice."""
    if indices is None:
        total.add_(values)
    elif total.device.type == "cpu" and total.dtype != torch.bfloat16:
        total.numpy()[indices.numpy()] += values.numpy()
    else:
        total[indices] += values


def add_rows(job: Job, rows: torch.Tensor, form: SparseFormat) -> bool:
    """Sum the payloads of all ranks in rank order into ``job.grad`` as a mean.

    Entries that several ranks send add up; what nobody sends is 0. Returns False, with
    ``job.grad`` untouched, when a rank flagged its payload as not finite.
    """
    if not all(math.isfinite(form.peak(row)) for row in rows):
        return False
    world = rows.shape[0]
    native = job.grad.dtype == job.work_dtype
    total = job.grad if native else job.take("sum", job.grad.numel(), job.work_dtype)
    total.zero_()
    for row in rows:
        indices, values = form.decode(row)
        add_at(total, indices, (values / world).to(total.dtype))
    if not native:
        job.grad.copy_(total)
    return True
