"""A rank program that times ring all-reduces of given sizes."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

WARM_UP, COUNTED = 3, 2


def prepare(spec: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    for _ in range(spec.get("clock_reads", 0)):
        time.monotonic()


def run(spec: dict[str, Any], prepared: None, where: Any) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{where.master_address}:{where.master_port}",
        rank=where.rank,
        world_size=where.world_size,
        timeout=timedelta(seconds=60),
    )
    seconds = {}
    where.ready()
    for size in spec["sizes"]:
        data = torch.full((size // 4,), float(where.rank))
        times = []
        for _ in range(WARM_UP + COUNTED):
            dist.barrier()
            begin = time.monotonic()
            dist.all_reduce(data)
            times.append(time.monotonic() - begin)
        seconds[str(size)] = times
        where.progress(size)
    where.result(status="ok", digest="same", seconds=seconds)
