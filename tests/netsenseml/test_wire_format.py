"""The wire format: whatever is packed comes back, and random bytes never get through unnoticed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from netsenseml import bits
from netsenseml.wire import (
    SparseFormat,
    WireError,
    decode_indices,
    encode_indices,
    index_bytes,
)

quick = settings(max_examples=60, deadline=None)


def random_indices(numel: int, kept: int, seed: int) -> torch.Tensor:
    chosen = np.random.default_rng(seed).choice(numel, kept, replace=False)
    return torch.from_numpy(np.sort(chosen))


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    numel = draw(st.integers(1, 5000))
    return numel, draw(st.integers(1, numel))


@quick
@given(sizes(), st.integers(0, 2**31))
def test_every_index_form_round_trips(size: tuple[int, int], seed: int) -> None:
    numel, kept = size
    indices = random_indices(numel, kept, seed)
    for form, nbytes in index_bytes(numel, kept).items():
        packed = torch.empty(nbytes, dtype=torch.uint8)
        encode_indices(indices, numel, form, packed)
        assert torch.equal(decode_indices(packed, numel, kept, form), indices), form


@quick
@given(sizes(), st.integers(0, 2**31), st.sampled_from(["fp8", "fp16", "bf16", "fp32"]))
def test_payload_round_trips_what_encode_says_was_sent(
    size: tuple[int, int], seed: int, values: str
) -> None:
    numel, kept = size
    generator = torch.Generator().manual_seed(seed)
    exponent = torch.randint(-40, 115, (1,), generator=generator)
    chosen = torch.randn(kept, generator=generator) * 2.0**exponent
    indices = random_indices(numel, kept, seed)
    form = SparseFormat(numel, kept, values)
    payload = torch.zeros(form.nbytes, dtype=torch.uint8)
    sent = form.encode(payload, chosen, indices, chosen.abs().max())
    got_indices, got = form.decode(payload)
    assert torch.equal(got, sent)
    precision = {"fp8": 2.0**-4, "fp16": 2.0**-10, "bf16": 2.0**-7, "fp32": 0.0}[values]
    peak = float(chosen.abs().max())
    assert float((sent - chosen).abs().max()) <= precision * peak
    if got_indices is None:
        assert kept == numel
    else:
        assert torch.equal(got_indices, indices)


@quick
@given(sizes(), st.integers(0, 2**31))
def test_signs_round_trip_with_their_mean_magnitude(size: tuple[int, int], seed: int) -> None:
    numel, kept = size
    chosen = torch.randn(kept, generator=torch.Generator().manual_seed(seed))
    indices = random_indices(numel, kept, seed)
    form = SparseFormat(numel, kept, "sign")
    payload = torch.zeros(form.nbytes, dtype=torch.uint8)
    sent = form.encode(payload, chosen, indices, chosen.abs().max())
    got_indices, got = form.decode(payload)
    assert torch.equal(got, sent)
    assert torch.equal(got < 0, chosen < 0)
    assert float(got.abs().max()) == pytest.approx(float(chosen.double().abs().mean()), rel=1e-5)
    assert got_indices is None if kept == numel else torch.equal(got_indices, indices)
    assert form.nbytes <= 4 + form.index_bytes + 3 + 4 + kept / 8 + 4


@quick
@given(sizes(), st.binary(min_size=0, max_size=64), st.integers(0, 2**31))
def test_random_bytes_give_a_payload_or_a_clear_error(
    size: tuple[int, int], head: bytes, seed: int
) -> None:
    numel, kept = size
    form = SparseFormat(numel, kept, "fp16" if seed % 2 else "sign")
    noise = np.random.default_rng(seed).integers(0, 256, form.nbytes, dtype=np.uint8)
    noise[: len(head)] = np.frombuffer(head[: noise.size], dtype=np.uint8)
    try:
        indices, values = form.decode(torch.from_numpy(noise))
    except WireError:
        return
    assert values.shape == (kept,)
    if indices is not None:
        assert indices.shape == (kept,)
        assert int(indices.min()) >= 0
        assert int(indices.max()) < numel


def test_a_payload_of_another_size_is_refused() -> None:
    form = SparseFormat(100, 10, "fp32")
    with pytest.raises(WireError, match=r"payload of 3 bytes, expected \d+"):
        form.decode(torch.zeros(3, dtype=torch.uint8))


@quick
@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_bits_round_trip(flags: list[bool]) -> None:
    given_flags = torch.tensor(flags)
    packed = torch.empty((len(flags) + 7) // 8, dtype=torch.uint8)
    bits.pack_bits(given_flags, packed)
    assert torch.equal(bits.unpack_bits(packed, len(flags)).bool(), given_flags)


@quick
@given(st.lists(st.integers(-1, 1), min_size=1, max_size=300))
def test_trits_round_trip_at_1_6_bits(digits: list[int]) -> None:
    given_digits = torch.tensor(digits, dtype=torch.int8)
    packed = torch.empty(-(-len(digits) // 5), dtype=torch.uint8)
    bits.pack_trits(given_digits, packed)
    assert torch.equal(bits.unpack_trits(packed, len(digits)), given_digits)


def test_a_byte_that_is_no_trits_is_refused() -> None:
    with pytest.raises(ValueError, match="above 242"):
        bits.unpack_trits(torch.tensor([243], dtype=torch.uint8), 5)


@quick
@given(st.integers(0, 12), st.integers(1, 200), st.integers(0, 2**31))
def test_fields_round_trip(width: int, count: int, seed: int) -> None:
    values = torch.from_numpy(np.random.default_rng(seed).integers(0, 2**width, count))
    packed = torch.empty(-(-count * width // 8), dtype=torch.uint8)
    bits.pack_fields(values, width, packed)
    assert torch.equal(bits.unpack_fields(packed, width, count), values)


@pytest.mark.parametrize("ratio", [0.1, 0.01, 0.001])
def test_indices_are_near_the_entropy_bound(ratio: float) -> None:
    numel = 11_700_000
    kept = math.ceil(ratio * numel)
    per_value = 8 * SparseFormat(numel, kept, "fp16").index_bytes / kept
    entropy = math.log2(1 / ratio) + 1.44
    assert per_value <= entropy + 1.0
    if ratio == 0.01:
        assert per_value <= 12


def test_known_bytes() -> None:
    # 3 of 8 kept: the bitmap is smallest, bit i of the byte is entry i.
    form = SparseFormat(8, 3, "fp32")
    assert form.form == "bitmap"
    payload = torch.zeros(form.nbytes, dtype=torch.uint8)
    values = torch.tensor([-3.0, 1.0, 2.0])
    form.encode(payload, values, torch.tensor([0, 2, 7]), torch.tensor(3.0))
    assert payload[4] == 0b10000101
    assert payload[8:].view(torch.float32).tolist() == [-3.0, 1.0, 2.0]
    assert form.nbytes == 4 + 4 + 12
