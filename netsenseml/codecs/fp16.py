"""``fp16``: the mean, summed in IEEE half precision; half of the dense bytes.

Like torch's ``fp16_compress_hook``, but it divides before it casts, so that a gradient of 1e5 does
not become inf, and it rescales by powers of two, so that small gradients keep their bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from netsenseml.codecs.half import HalfCodec
from netsenseml.methods import Method, fixed
from netsenseml.options import Options

__all__ = ["METHOD", "Fp16", "Fp16Options"]


@dataclass(frozen=True)
class Fp16Options(Options):
    """Options of ``fp16``.

    Attributes
    ----------
    rescale : bool
        Scale by a power of two taken from the last step's reduced peak.
    error_feedback : bool
        Carry the rounding error over to the next step.
    """

    rescale: bool = True
    error_feedback: bool = False


class Fp16(HalfCodec):
    """Half precision on the wire."""

    name = "fp16"
    wire_dtype = torch.float16


METHOD = Method("fp16", Fp16Options, fixed(lambda options: Fp16(options.rescale)))
