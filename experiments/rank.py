"""The rank program: train with DDP, compress with `netsenseml`, write down every step.

Runs in a rank of the testbed. `prepare` is called once before the ranks are forked, so that
they share what it loads.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
from datetime import timedelta
from typing import IO, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import netsenseml
from netsenseml.native import kernels

from .accelerator import Accelerator, DeviceProfile
from .hardware import Hardware, nccl_environment, process_group_backend

__all__ = ["prepare", "run"]

_LARGE = 5_000_000  # parameters

_RECORDED = (
    "codec",
    "strength",
    "wire_bytes",
    "control_bytes",
    "link_bytes",
    "dense_bytes",
    "encode_s",
    "decode_s",
    "bandwidth_mbps",
    "latency_ms",
    "reason",
    "nonfinite",
)


def _device(spec: dict[str, Any]) -> str:
    """Return where tensors live: profiles are charged on the processor."""
    return "cuda" if spec["workload"]["device"] == "cuda" else "cpu"


def _task(spec: dict[str, Any]) -> Any:
    name = spec["workload"]["task"].replace("-", "_")
    return importlib.import_module(f"experiments.workloads.{name}")


def prepare(spec: dict[str, Any]) -> Any:
    """Import and load what all ranks share; returns the task's data."""
    torch.set_num_threads(1)
    if spec["clock"] == "virtual":
        # what this machine's cache holds must not reach a cell that repeats everywhere
        os.environ["NETSENSEML_NATIVE"] = "0"
    importlib.import_module("torch._dynamo")  # DDP does, 6 s in each rank otherwise

    data = _task(spec).prepare()
    # pages touched here are touched once instead of in every rank
    _warm_up(_task(spec), data, spec)
    return data


def _warm_up(task: Any, data: Any, spec: dict[str, Any]) -> None:
    model = task.build_model()
    numel = sum(p.numel() for p in model.parameters())
    if numel != task.PARAMETERS:
        raise RuntimeError(f"{task.__name__} has {numel} parameters instead of {task.PARAMETERS}")
    batch = spec["workload"]["batch_size"]
    task.loss(model(task.inputs(data.train_x[:batch])), data.train_y[:batch]).backward()


def _optimizer(model: nn.Module, workload: dict[str, Any]) -> torch.optim.Optimizer:
    lr, decay = workload["lr"], workload["weight_decay"]
    if workload["optimizer"] == "adam":
        return torch.optim.Adam(model.parameters(), lr=lr, weight_decay=decay)
    momentum = workload["momentum"]
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, weight_decay=decay)


def _schedule(
    optimizer: torch.optim.Optimizer, workload: dict[str, Any]
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return the learning rate's course: a warm-up, then constant or a cosine down to zero."""
    steps, warmup = workload["steps"], workload["lr_warmup_steps"]

    def factor(step: int) -> float:
        rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
        if workload["schedule"] == "constant":
            return rise
        return rise * (1 + math.cos(math.pi * step / steps)) / 2

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _digest(model: nn.Module) -> str:
    """Hash the parameters bit by bit: replicas that agree have the same."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


class _Order:
    """The order of the training data: a permutation per epoch, disjoint among the ranks."""

    def __init__(self, samples: int, batch: int, rank: int, world: int, seed: int) -> None:
        self._samples, self._batch = samples, batch
        self._rank, self._world = rank, world
        self._generator = torch.Generator().manual_seed(seed)
        self._left = torch.empty(0, dtype=torch.int64)

    def next(self) -> torch.Tensor:
        """Return the indices of this rank's next batch."""
        if len(self._left) < self._batch:
            epoch = torch.randperm(self._samples, generator=self._generator)
            self._left = epoch[self._rank :: self._world]
        batch, self._left = self._left[: self._batch], self._left[self._batch :]
        return batch


class _Trainer:
    def __init__(self, spec: dict[str, Any], data: Any, where: Any) -> None:
        self.spec, self.data, self.where = spec, data, where
        self.work = spec["workload"]
        self.task = _task(spec)
        torch.manual_seed(spec["seed"])
        model = self.task.build_model()
        numel = sum(p.numel() for p in model.parameters())
        slow = self.work["straggler"] or {}
        extra_s = slow["extra_ms"] / 1e3 if slow.get("rank") == where.rank else 0.0
        self.accelerator = (
            Accelerator(DeviceProfile(**spec["device"]), numel, extra_s)
            if spec["clock"] == "virtual"
            else Hardware(_device(spec), where.rank, extra_s)
        )
        self.device = self.accelerator.device
        self.ddp = DistributedDataParallel(
            model.to(self.device),
            gradient_as_bucket_view=True,
            bucket_cap_mb=spec["bucket_cap_mb"],
            # running statistics are no gradients: each rank keeps its own, under every method
            forward_sync_buffers=False,
            # the seed makes replicas equal: sending a large model around would only take time
            init_sync=numel < _LARGE,
        )
        self.state = netsenseml.make_state(
            self.ddp,
            method=spec["method"],
            seed=spec["seed"],
            spans=self.accelerator,
            **spec["options"],
        )
        self.ddp.register_comm_hook(self.state, self._hook)
        self.optimizer = _optimizer(self.ddp, self.work)
        self.schedule = _schedule(self.optimizer, self.work)
        self.order = _Order(
            len(data.train_x), self.work["batch_size"], where.rank, where.world_size, spec["seed"]
        )
        self.origin_s = 0.0  # where training time 0 lies on the clock, evaluations left out
        self.link_bytes = self.rounds = 0
        self.steps: IO[str] = open(where.folder / f"steps-rank{where.rank}.jsonl", "w")  # noqa: SIM115
        self.evals: IO[str] | None = None
        if where.rank == 0:
            self.evals = open(where.folder / "evals.jsonl", "w")  # noqa: SIM115

    # no annotations: DDP compares them with its classes, and here they would be strings
    def _hook(self, state, bucket):  # type: ignore[no-untyped-def]
        self.accelerator.backward(bucket.buffer().numel())
        return netsenseml.hook(state, bucket)

    def now_s(self) -> float:
        return self.accelerator.clock() - self.origin_s

    def step(self, step: int) -> bool:
        """Train one step and write it down; return whether the loss is still finite."""
        start_s = self.now_s()
        index = self.order.next()
        self.accelerator.forward()
        output = self.ddp(self.task.inputs(self.data.train_x[index].to(self.device)))
        loss = self.task.loss(output, self.data.train_y[index].to(self.device))
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        record = self.state.finish_step()
        assert record is not None
        self.accelerator.communicated()
        self.optimizer.step()
        self.schedule.step()
        self.accelerator.optimizer()
        end_s = self.now_s()
        compute_s = self.accelerator.take_compute_s()
        others = self.where.world_size - 1
        self.link_bytes += record.link_bytes + record.control_bytes * others
        self.rounds += record.rounds + (others if record.control_bytes else 0)
        value = loss.item()
        self._write(
            self.steps,
            {
                "step": step,
                "t_start_s": round(start_s, 9),
                "t_end_s": round(end_s, 9),
                "compute_s": round(compute_s, 9),
                "exposed_comm_s": round(end_s - start_s - compute_s, 9),
                "loss": value if math.isfinite(value) else None,
                "samples": len(index),
                **{key: _plain(getattr(record, key)) for key in _RECORDED},
            },
        )
        return math.isfinite(value)

    def evaluate(self, step: int) -> None:
        """Count every test sample once, shared among the ranks; takes no training time.

        A task without any is not evaluated.
        """
        if not len(self.data.test_x):
            return
        before_s = self.accelerator.clock()
        rank, world = self.where.rank, self.where.world_size
        x, y = self.data.test_x[rank::world], self.data.test_y[rank::world]
        hits, loss, count = 0.0, 0.0, 0
        self.ddp.module.eval()
        with torch.no_grad():
            for at in range(0, len(x), 500):
                output = self.ddp.module(self.task.inputs(x[at : at + 500].to(self.device))).cpu()
                target = y[at : at + 500][: len(output)]
                hits += float((output.argmax(1) == target).sum())
                loss += float(self.task.loss(output, target)) * target.numel()
                count += target.numel()
        self.ddp.module.train()
        sums = torch.tensor([hits, loss, float(count)], dtype=torch.float64)
        dist.all_reduce(sums)
        self.rounds += 2 * (world - 1)
        self.origin_s += self.accelerator.clock() - before_s
        if self.evals is not None:
            total = float(sums[2])
            self._write(
                self.evals,
                {
                    "step": step,
                    "t_s": round(self.now_s(), 9),
                    "accuracy": float(sums[0]) / total,
                    "loss": _plain(float(sums[1]) / total),
                },
            )

    @staticmethod
    def _write(file: IO[str], record: dict[str, Any]) -> None:
        file.write(json.dumps(record, allow_nan=False) + "\n")
        file.flush()

    def train(self) -> str:
        """Train all steps; return ``ok`` or ``diverged``."""
        self.origin_s = self.where.ready()
        every = self.work["eval_every"] or self.work["steps"]
        bell = _Bell(self) if self.work.get("stop_s") else None
        for step in range(self.work["steps"]):
            if not self.step(step):
                return "diverged"
            self.where.progress(step)
            last = step + 1 == self.work["steps"] or (bell is not None and bell.rang())
            if (step + 1) % every == 0 or last:
                self.evaluate(step + 1)
            if last:
                break
        return "ok"


class _Bell:
    """Ends the training after a time: rank 0 looks at its clock, all know a step later.

    What rank 0 says after a step travels during the next one, so nobody waits for it.
    """

    def __init__(self, trainer: _Trainer) -> None:
        self._trainer = trainer
        self._said = torch.zeros(1)
        self._work: Any = None

    def rang(self) -> bool:
        """Return, after a step and alike on every rank, whether it was the last one."""
        trainer = self._trainer
        if self._work is not None:
            self._work.wait()
        over = bool(self._said[0])
        if trainer.where.rank == 0 and trainer.now_s() >= trainer.work["stop_s"]:
            self._said.fill_(1.0)
        if not over:
            self._work = dist.broadcast(self._said, 0, async_op=True)
            trainer.rounds += 1
        return over


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def run(spec: dict[str, Any], data: Any, where: Any) -> None:
    """Be rank `where.rank`: join, train, report.

    Parameters
    ----------
    spec
        The resolved cell.
    data
        What `prepare` returned.
    where
        The testbed's context: rank, world size, addresses, and how to report.
    """
    if not dist.is_initialized():  # a cluster's ranks have met before their first cell
        _meet(spec, where)
    trainer = _Trainer(spec, data, where)
    status = trainer.train()
    where.result(
        status=status,
        digest=_digest(trainer.ddp),
        link_bytes=trainer.link_bytes,
        rounds=trainer.rounds,
        native=kernels() is not None,
        parameters=sum(p.numel() for p in trainer.ddp.parameters()),
        reason="the loss is no longer finite" if status == "diverged" else None,
    )


def _meet(spec: dict[str, Any], where: Any) -> None:
    """Form the process group of all ranks."""
    os.environ |= {"MASTER_ADDR": where.master_address, "MASTER_PORT": str(where.master_port)}
    if _device(spec) == "cuda":
        os.environ |= nccl_environment(where.interface, f"rank{where.rank}")
    try:
        dist.init_process_group(
            process_group_backend(_device(spec)),
            init_method=f"tcp://{where.master_address}:{where.master_port}",
            rank=where.rank,
            world_size=where.world_size,
            timeout=timedelta(seconds=spec["stall_s"]),
        )
    except Exception as error:
        raise RuntimeError(
            f"no rendezvous at {where.master_address}:{where.master_port}: {error}"
        ) from error
