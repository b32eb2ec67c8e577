"""A rank that raises or dies ends the others within seconds, with the cause named."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from ddp_ranks import run_ranks_raw
from nets import batches, mlp, train
from torch.nn.parallel import DistributedDataParallel

import netsenseml

STAYS_S = 10.0


def failing(rank: int, world: int, method: str, how: str) -> Any:
    model = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)

    def on_step(record: netsenseml.StepRecord) -> None:
        if record.step == 2 and rank == 1:
            if how == "dies":
                os._exit(7)
            raise ValueError("the disk is full")

    state = netsenseml.register(model, method, on_step=None if how == "outside" else on_step)
    begin = time.monotonic()
    try:
        with state.reporting():
            train(model, batches(rank), 3 if how == "outside" else 10)
            if how == "outside" and rank == 1:
                raise ValueError("the disk is full")
            train(model, batches(rank), 10)
    except ValueError as error:
        if how in ("stays", "outside"):
            time.sleep(STAYS_S)
        return str(error), time.monotonic() - begin
    except netsenseml.PeerFailure as error:
        return str(error), time.monotonic() - begin
    return "nothing happened", time.monotonic() - begin


@pytest.mark.parametrize("method", ["allreduce", "topk", "powersgd", "netsense"])
@pytest.mark.parametrize("how", ["raises", "dies"])
def test_the_first_cause_reaches_every_rank(method: str, how: str) -> None:
    check(method, how)


@pytest.mark.parametrize("how", ["stays", "outside"])
def test_a_rank_that_failed_but_lives_on_holds_nobody(how: str) -> None:
    check("topk", how)


def check(method: str, how: str) -> None:
    outcomes = run_ranks_raw(failing, 3, method, how, limit_s=60.0)
    assert outcomes[1][0] is (how != "dies")
    for rank in (0, 2):
        good, value = outcomes[rank]
        assert good, value
        message, seconds = value
        assert seconds < STAYS_S
        if how == "dies":
            assert "no sign of life from rank 1" in message
        else:
            assert "rank 1 at step 2: ValueError: the disk is full" in message
