"""Device profiles as estimates: operations of a model over what a GPU's data sheet promises.

Nothing is timed. The model runs once, on the CPU, at the size that is asked about, to learn what
its layers do; everything else is arithmetic, written into the profile as its formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Gpu", "curve_of", "estimate", "layer_macs"]

# passes over the dense gradient that encoding and decoding make: (encode, decode)
_PASSES = {
    "allreduce": (1.5, 1.5),  # one division in place
    "fp16": (3.0, 3.0),  # a cast reads 4 and writes 2 bytes; half of the rate assumed lost
    "bf16": (3.0, 3.0),
    "int8": (6.0, 6.0),
    "qsgd": (6.0, 6.0),
    "topk": (20.0, 6.0),  # a selection passes over the data about 20 times
    "powersgd": (4.0, 2.0),
    "default": (20.0, 6.0),
}
_LAUNCHES_S = 4e-3  # of the low-rank methods: kernels per layer, about 20 layers


@dataclass(frozen=True)
class Gpu:
    """What a data sheet says, and the share of it that training reaches.

    Parameters
    ----------
    name : str
    tflops : float
        fp32, 10^12 operations per second.
    reached : float
        Share of it, in (0, 1].
    memory_gb_per_s : float
    """

    name: str
    tflops: float
    reached: float
    memory_gb_per_s: float


def layer_macs(model: nn.Module, inputs: Tensor) -> list[tuple[int, int]]:
    """Return (parameters, multiply-adds) of each layer with weights, first layer first.

    Convolutions and linear layers count their multiply-adds for `inputs`; other layers count 0.
    """
    found: list[tuple[int, int]] = []
    order: list[nn.Module] = [
        m for m in model.modules() if next(m.parameters(False), None) is not None
    ]
    macs: dict[nn.Module, int] = {}

    def note(module: nn.Module, _: Any, output: Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            positions = output.numel() // module.out_channels
            macs[module] = macs.get(module, 0) + positions * module.weight.numel()
        elif isinstance(module, nn.Linear):
            rows = output.numel() // module.out_features
            macs[module] = macs.get(module, 0) + rows * module.weight.numel()

    hooks = [module.register_forward_hook(note) for module in order]
    with torch.no_grad():
        model(inputs)
    for hook in hooks:
        hook.remove()
    for module in order:
        found.append((sum(p.numel() for p in module.parameters(False)), macs.get(module, 0)))
    return found


def curve_of(layers: Sequence[tuple[float, float]], points: int = 24) -> list[list[float]]:
    """Return the backward curve of layers given as (parameters, cost), first layer first.

    The last layer's gradients are ready first. Layers are merged until at most about `points` are
    left.
    """
    numel = sum(size for size, _ in layers)
    cost = sum(part for _, part in layers)
    curve, ready, spent = [[0.0, 0.0]], 0.0, 0.0
    for size, part in reversed(layers):
        ready, spent = ready + size / numel, spent + part / cost
        last = curve[-1]
        if len(curve) > 1 and ready - last[0] < 1 / points and spent - last[1] < 1 / points:
            continue
        curve.append([round(ready, 4), round(spent, 4)])
    curve[-1] = [1.0, 1.0]
    return curve


def estimate(
    title: str, layers: Sequence[tuple[int, int]], batch: int, gpu: Gpu
) -> dict[str, Any]:
    """Return a profile of a model whose `layers` were counted for one sample."""
    macs = sum(count for _, count in layers)
    numel = sum(size for size, _ in layers)
    step_s = 3 * 2 * macs * batch / (gpu.tflops * 1e12 * gpu.reached)
    memory = gpu.memory_gb_per_s * 1e9

    def rate(codec: str, way: int) -> float:
        seconds = _PASSES[codec][way] * 4 * numel / memory
        seconds += _LAUNCHES_S / (1 + way) if codec == "powersgd" else 0.0
        return float(f"{4 * numel / seconds:.3g}")

    # the optimizer reads and writes parameter and momentum and reads the gradient
    optimizer_s = 5 * 4 * numel / memory
    formula = (
        f"Compute: 3 (forward, and twice that for backward) x 2 x {macs / 1e9:.2f} GMAC x {batch}"
        f" samples at {gpu.reached:.0%} of {gpu.tflops:g} TFLOP/s in fp32: {step_s * 1e3:.0f} ms;"
        f" a third of it is forward. Optimizer: 5 passes over {4 * numel / 1e6:.1f} MB at"
        f" {gpu.memory_gb_per_s:g} GB/s. Codecs: passes over the gradient at that rate, encode and"
        " decode: "
        + ", ".join(f"{k} {a:g} and {b:g}" for k, (a, b) in _PASSES.items())
        + f"; low rank has {_LAUNCHES_S * 1e3:g} and {_LAUNCHES_S * 5e2:g} ms of launches more."
        " Backward curve: multiply-adds of the layers."
    )
    return {
        "description": f"{title} on {gpu.name}",
        "kind": "estimate",
        "source": "estimate",
        "formula": formula,
        "parameters": numel,
        "forward_s": round(step_s / 3, 6),
        "backward_s": round(step_s * 2 / 3, 6),
        "optimizer_s": round(optimizer_s, 6),
        "backward_curve": curve_of(layers),
        "encode_bytes_per_s": {codec: rate(codec, 0) for codec in _PASSES},
        "decode_bytes_per_s": {codec: rate(codec, 1) for codec in _PASSES},
    }
