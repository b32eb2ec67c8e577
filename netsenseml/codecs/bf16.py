"""``bf16``: the mean, summed in bfloat16: the range of fp32 with 8 bits of precision.

torch's ``bf16_compress_hook`` refuses the CPU; this one runs on gloo as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from netsenseml.codecs.half import HalfCodec
from netsenseml.methods import Method, fixed
from netsenseml.options import Options

__all__ = ["METHOD", "Bf16", "Bf16Options"]


@dataclass(frozen=True)
class Bf16Options(Options):
    """Options of ``bf16``.

    Attributes
    ----------
    error_feedback : bool
        Carry the rounding error over to the next step.
    """

    error_feedback: bool = False


class Bf16(HalfCodec):
    """bfloat16 on the wire; its range needs no rescaling."""

    name = "bf16"
    wire_dtype = torch.bfloat16


METHOD = Method("bf16", Bf16Options, fixed(lambda options: Bf16(rescale=False)))
