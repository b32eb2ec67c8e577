"""Attaching a compression method to a DDP module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from netsenseml.layout import MAX_GROUP_BYTES
from netsenseml.methods import find
from netsenseml.options import build_options
from netsenseml.record import StepRecord
from netsenseml.spans import Spans
from netsenseml.state import HookState

__all__ = ["hook", "make_state", "register"]


def hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook of every method: ``model.register_comm_hook(state, hook)``.

    Parameters
    ----------
    state : HookState
        From :func:`make_state`; it decides what the hook does.
    bucket : torch.distributed.GradBucket
        Gradients of shape (n,), not divided by the number of ranks.

    Returns
    -------
    Future of a tensor of shape (n,)
        The mean over all ranks, in the bucket's own buffer.
    """
    return state.on_bucket(bucket)


# Postponed annotations are strings, and DDP compares the annotation objects themselves.
hook.__annotations__["bucket"] = dist.GradBucket
hook.__annotations__["return"] = torch.futures.Future[torch.Tensor]


def make_state(
    ddp_model: Any,
    method: str = "netsense",
    *,
    process_group: Any = None,
    seed: int = 0,
    spans: Spans | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
    **options: Any,
) -> HookState:
    """Make the state of a method for a DDP module without registering anything.

    Parameters
    ----------
    ddp_model : DistributedDataParallel
    method : str
        A name from :func:`netsenseml.methods`.
    process_group : ProcessGroup, optional
        Default: the group of ``ddp_model``. All ranks of it average.
    seed : int
        Seed of the randomized codecs; the same on every rank.
    spans : Spans, optional
        Source of time and of encode/decode cost. Default: real time.
    on_step : callable, optional
        Called once with the :class:`StepRecord` of every finished step, inside backward.
    **options
        Fields of ``netsenseml.options(method)``.

    Raises
    ------
    ValueError
        Unknown method, a value outside its range, or a parameter whose gradient is above
        2^31 - 1 bytes.
    TypeError
        Unknown option, or a value of the wrong type.
    """
    chosen_method = find(method)
    chosen = build_options(chosen_method.options, options, method)
    module = getattr(ddp_model, "module", None)
    group = (
        process_group if process_group is not None else getattr(ddp_model, "process_group", None)
    )
    if module is None or group is None:
        raise TypeError(
            f"expected a DistributedDataParallel module, got {type(ddp_model).__name__}"
        )
    for name, parameter in module.named_parameters():
        if 4 * parameter.numel() > MAX_GROUP_BYTES:
            raise ValueError(
                f"parameter {name!r} has a gradient of {4 * parameter.numel()} bytes, above the "
                f"limit of {MAX_GROUP_BYTES} for one collective: split the layer"
            )
    return HookState(module, group, chosen_method, chosen, seed=seed, spans=spans, on_step=on_step)


def register(ddp_model: Any, method: str = "netsense", **keywords: Any) -> HookState:
    """Compress the gradients of a DDP module with a method from now on.

    Parameters and errors are those of :func:`make_state`; DDP allows one hook per module.

    Examples
    --------
    >>> model = DistributedDataParallel(net)                  # doctest: +SKIP
    >>> state = netsenseml.register(model, method="netsense")  # doctest: +SKIP
    """
    state = make_state(ddp_model, method, **keywords)
    ddp_model.register_comm_hook(state, hook)
    return state
