"""Exact selection."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from netsenseml.selection import kept_count, top_k
from netsenseml.wire import SparseFormat, WireError


@pytest.mark.parametrize("numel", [1, 7, 1000, 300_000])
@pytest.mark.parametrize("ratio", [1e-9, 0.001, 0.01, 0.3, 0.99, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_magnitudes_as_torch(numel: int, ratio: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(numel)
    magnitudes = torch.randn(numel, generator=generator, dtype=dtype).abs()
    kept = kept_count(numel, ratio)
    indices = top_k(magnitudes, kept)
    assert torch.equal(indices, indices.unique())
    expected = torch.topk(magnitudes, kept).values
    assert torch.equal(magnitudes[indices].sort(descending=True).values, expected)


def test_of_equal_magnitudes_the_first_win() -> None:
    assert top_k(torch.full((200_000,), 0.5), 5).tolist() == [0, 1, 2, 3, 4]
    assert top_k(torch.tensor([1.0, 2.0, 1.0, 2.0, 1.0]), 3).tolist() == [0, 1, 3]


def test_a_hidden_spike_is_found_whatever_the_sample_saw() -> None:
    magnitudes = torch.zeros(1_000_000)
    magnitudes[777_777] = 1.0
    magnitudes[12_345] = 0.5
    assert top_k(magnitudes, 2).tolist() == [12_345, 777_777]


def test_nan_is_selected_first_so_that_it_cannot_hide() -> None:
    magnitudes = torch.ones(10)
    magnitudes[3] = float("nan")
    assert top_k(magnitudes, 1).tolist() == [3]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=40), st.data())
def test_small_tensors_with_ties(values: list[float], data: st.DataObject) -> None:
    kept = data.draw(st.integers(1, len(values)))
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    assert top_k(torch.tensor(values), kept).tolist() == sorted(order[:kept])


@pytest.mark.parametrize(
    ("numel", "ratio", "kept"),
    [(99, 0.01, 1), (100, 0.29, 29), (10, 0.001, 1), (0, 0.5, 0), (7, 1.0, 7), (3, 0.34, 2)],
)
def test_kept_count_rounds_up_and_is_never_empty(numel: int, ratio: float, kept: int) -> None:
    assert kept_count(numel, ratio) == kept


def test_the_public_codes_wire_format_is_twelve_bytes_per_entry() -> None:
    numel, kept = 5000, 500
    form = SparseFormat(numel, kept, "fp32", "int64")
    assert form.nbytes == 4 + 12 * kept
    indices = torch.arange(0, numel, 10)
    values = torch.randn(kept)
    payload = torch.zeros(form.nbytes, dtype=torch.uint8)
    sent = form.encode(payload, values, indices, values.abs().max())
    got_indices, got = form.decode(payload)
    assert torch.equal(sent, values)
    assert torch.equal(got, values)
    assert torch.equal(got_indices, indices)
    payload[4:12].view(torch.int32).copy_(torch.tensor([numel, 0], dtype=torch.int32))
    with pytest.raises(WireError, match="points outside"):
        form.decode(payload)
