"""Saving and loading a hook state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from netsenseml.state import HookState

__all__ = ["FORMAT", "load", "save"]

FORMAT = 1


def save(state: HookState) -> dict[str, Any]:
    """The state as plain tensors, numbers, texts, lists and dictionaries (copies)."""
    if state._context is not None:
        raise ValueError("state_dict: a step is under way; save after backward()")
    return {
        "format": FORMAT,
        "method": state.method,
        "seed": state.seed,
        "world_size": state._transport.world,
        "rank": state._transport.rank,
        "step": state._step,
        "nonfinite_steps": state._nonfinite_steps,
        "shapes": {name: list(shape) for name, shape in _shapes(state).items()},
        "groups": [list(group.names) for group in state._groups],
        "residuals": {name: view.clone() for name, view in state.residuals().items()},
        "codecs": {name: _plain(codec.state_dict()) for name, codec in state._codecs.items()},
        "policy": _plain(state._policy.state_dict()),
        "agreement": _plain(state._agreement.state_dict()) if state._agreement else None,
    }


def load(state: HookState, saved: Mapping[str, Any]) -> None:
    """Check that ``saved`` belongs to this rank, method and module, then take it over."""
    if state._context is not None:
        raise ValueError("load_state_dict: a step is under way; load before the training step")
    if saved.get("format") != FORMAT:
        raise ValueError(f"load_state_dict: format {saved.get('format')!r}, expected {FORMAT}")
    here = {
        "method": state.method,
        "seed": state.seed,
        "world_size": state._transport.world,
        "rank": state._transport.rank,
    }
    for key, value in here.items():
        if saved[key] != value:
            raise ValueError(f"load_state_dict: saved with {key} {saved[key]!r}, here {value!r}")
    _check_shapes(saved["shapes"], _shapes(state))
    state._step = int(saved["step"])
    state._end_s = None
    state._nonfinite_steps = int(saved["nonfinite_steps"])
    state._groups = state._layouts.prefer(saved["groups"])
    if state._feedback is not None:
        state._feedback.load(saved["residuals"])
    for name, codec in state._codecs.items():
        codec.load_state_dict(saved["codecs"][name])
    state._policy.load_state_dict(saved["policy"])
    if state._agreement is not None:
        nothing = {"rows": None, "ping_s": math.nan}  # older states do not have it
        state._agreement.load_state_dict(saved.get("agreement") or nothing)


def _shapes(state: HookState) -> dict[str, tuple[int, ...]]:
    return state._layouts.shapes()


def _check_shapes(theirs: Mapping[str, list[int]], ours: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in ours.items():
        if name not in theirs:
            raise ValueError(f"load_state_dict: parameter {name!r} is not in the saved state")
        if tuple(theirs[name]) != shape:
            raise ValueError(
                f"load_state_dict: parameter {name!r} was saved with shape "
                f"{tuple(theirs[name])}, here {shape}"
            )
    for name in theirs:
        if name not in ours:
            raise ValueError(f"load_state_dict: saved parameter {name!r} is not in the module")


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
