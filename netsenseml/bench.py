"""Speed of the codecs against plain torch operators, as ratios within one run.

Every ratio compares two things measured alternately in the same process on one thread, so that a
slow or busy machine slows both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from netsenseml.codecs.fp16 import Fp16
from netsenseml.codecs.half import CHUNK
from netsenseml.codecs.int8 import quantize
from netsenseml.codecs.signs import l1_norm, sign_bits
from netsenseml.memory import Scratch
from netsenseml.native import kernels
from netsenseml.selection import kept_count, top_k
from netsenseml.spans import Spans, default_spans
from netsenseml.wire import SparseFormat

__all__ = ["Comparison", "run"]


@dataclass(frozen=True)
class Comparison:
    """Median seconds of one piece of work and of what it is compared with.

    ``ratio`` is the speed of the work relative to the reference: 2 is twice as fast.
    """

    name: str
    seconds: float
    reference: str
    reference_seconds: float
    wanted_ratio: float

    @property
    def ratio(self) -> float:
        """Reference time per own time."""
        return self.reference_seconds / self.seconds

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "seconds": self.seconds,
            "reference": self.reference,
            "reference_seconds": self.reference_seconds,
            "ratio": self.ratio,
            "wanted_ratio": self.wanted_ratio,
        }


def _alternate(
    spans: Spans, repeats: int, work: Callable[[], object], reference: Callable[[], object]
) -> tuple[float, float]:
    """Medians of both, measured in turn after one warm-up each."""
    work()
    reference()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for call, into in zip((work, reference), times, strict=True):
            begin = spans.clock()
            call()
            into.append(spans.clock() - begin)
    return statistics.median(times[0]), statistics.median(times[1])


def run(numel: int = 11_700_000, repeats: int = 7, device: str = "cpu") -> dict[str, Any]:
    """Measure on ``numel`` floats (default: ResNet18) and return everything as plain values.

    Parameters
    ----------
    numel : int
    repeats : int
        Alternating measurements of each pair; the median counts.
    device : str
        ``"cpu"`` or ``"cuda"``.
    """
    torch.set_num_threads(1)
    place = torch.device(device)
    spans = default_spans(place)
    source = torch.randn(numel, generator=torch.Generator().manual_seed(0)).to(place)
    target = torch.empty_like(source)
    scratch = Scratch()

    def plain_copy() -> object:
        return target.copy_(source)

    rows = []
    for ratio, wanted in ((0.01, 3.0), (0.1, 1.0), (0.001, 3.0)):
        kept = kept_count(numel, ratio)
        form = SparseFormat(numel, kept, "fp16")
        payload = torch.empty(form.nbytes, dtype=torch.uint8, device=place)
        encode = _top_k_encoder(source, target, form, payload)

        def selection(kept: int = kept) -> object:
            return torch.topk(source.abs(), kept)

        mine, theirs = _alternate(spans, repeats, encode, selection)
        name = f"topk encode {ratio:g}"
        rows.append(Comparison(name, mine, "torch.topk(abs)", theirs, wanted))
    for name, work in _quantizers(source, scratch).items():
        mine, theirs = _alternate(spans, repeats, work, plain_copy)
        rows.append(Comparison(f"{name} encode", mine, "copy", theirs, 0.5))
    kept = kept_count(numel, 0.01)
    form = SparseFormat(numel, kept, "fp16")
    return {
        "torch": torch.__version__,
        "device": device,
        "threads": torch.get_num_threads(),
        "native": kernels() is not None,
        "numel": numel,
        "repeats": repeats,
        "index_bits_at_1_percent": 8 * form.index_bytes / kept,
        "index_form_at_1_percent": form.form,
        "comparisons": [row.as_dict() for row in rows],
    }


def _top_k_encoder(
    source: torch.Tensor, magnitudes: torch.Tensor, form: SparseFormat, payload: torch.Tensor
) -> Callable[[], object]:
    """Selection, index coding and rounding: all that the codec does without feedback."""
    from netsenseml.codecs.base import peak_of
    from netsenseml.codecs.sparse import take

    def encode() -> object:
        indices = top_k(torch.abs(source, out=magnitudes), form.kept)
        peak = peak_of(take(magnitudes, indices))
        return form.encode(payload, take(source, indices), indices, peak)

    return encode


def _quantizers(source: torch.Tensor, scratch: Scratch) -> dict[str, Callable[[], object]]:
    numel, place = source.numel(), source.device
    half = Fp16(rescale=True)
    wire = torch.empty(numel, dtype=torch.float16, device=place)
    part = torch.empty(CHUNK, device=place)
    blocks = numel // 256
    scales = torch.empty(blocks, device=place)
    codes = torch.empty(blocks * 256, dtype=torch.int8, device=place)
    negative = torch.empty(numel, dtype=torch.bool, device=place)
    packed = torch.empty((numel + 7) // 8, dtype=torch.uint8, device=place)

    def fp16() -> None:
        half.round(source, wire, 0.25, part)

    def int8() -> None:
        quantize(source[: blocks * 256], 256, scales, codes, part)

    def sign() -> object:
        sign_bits(source, negative, packed)
        return l1_norm(source)

    return {"fp16": fp16, "int8": int8, "sign": sign}
