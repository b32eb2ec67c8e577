"""What `make reproduce` runs: the paper's models, networks and methods, as one sweep.

Networks are stated for the full-size models. A model with fewer parameters by a factor stands
for the full-size one on links, queues and buckets that are smaller by the same factor; latency,
compute and encode times stay (`experiments.profiles`). One full-size cell per model proves it.

The scaling is exact for methods whose bytes follow the parameters. Those of the low-rank methods
follow the widths: on a model with widths divided by w they weigh w times too much. So methods
that may use them run on a larger model, in full size where that can be afforded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .profiles import load_profile
from .scenario import check
from .sweepfile import Sweep, Variation

__all__ = ["METHODS", "NETWORKS", "Model", "Network", "reproduction"]

RANKS = 8

#: Every method in one configuration, the same everywhere.
METHODS: dict[str, Any] = {
    "allreduce": "allreduce",
    "fp16": "fp16",
    "topk-0.1-int64": {
        "name": "topk",
        "label": "topk-0.1-int64",
        "options": {"ratio": 0.1, "values": "fp32", "indices": "int64"},
    },
    "topk-0.1": {"name": "topk", "label": "topk-0.1", "options": {"ratio": 0.1}},
    "topk-0.01": {"name": "topk", "label": "topk-0.01", "options": {"ratio": 0.01}},
    "dgc": "dgc",
    "qsgd": "qsgd",
    "powersgd-4": {"name": "powersgd", "label": "powersgd-4", "options": {"rank": 4}},
    "netsense-paper": "netsense-paper",
    "netsense": "netsense",
}
_ALL = tuple(METHODS)
_FEW = ("allreduce", "topk-0.1-int64", "netsense")


@dataclass(frozen=True)
class Network:
    """A network of the comparison, as the full-size models see it.

    Parameters
    ----------
    rate_mbps, delay_ms : float
        Of every link, each way; delay is one way.
    queue_bytes : int
    falls_to : tuple of float
        Rates of further parts of the run, all of equal length.
    flows : tuple of int
        Parallel iperf3 connections in parts of the run of equal length.
    """

    rate_mbps: float
    delay_ms: float
    queue_bytes: int
    falls_to: tuple[float, ...] = ()
    flows: tuple[int, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether it is not the same all the time."""
        return bool(self.falls_to or self.flows)


#: One cluster in one room, whose links are capped: 0.2 ms of round trip everywhere.
NETWORKS = {
    "200m": Network(200, 0.05, 1 << 20),
    "500m": Network(500, 0.05, 1 << 20),
    "800m": Network(800, 0.05, 1 << 20),
    "10g": Network(10_000, 0.05, 4 << 20),
    "degrading": Network(2000, 0.05, 1 << 20, falls_to=(1000, 500, 200)),
    "fluctuating": Network(1000, 0.05, 1 << 20, flows=(1, 10, 25, 50)),
}


@dataclass(frozen=True)
class Model:
    """A full-size model and what stands for it.

    Parameters
    ----------
    name : str
        The full-size task and device profile.
    task : str
        What is run.
    steps : int
        On a network that stays the same.
    low_rank_task : str, optional
        What is run with methods that may use low rank, on such a network.
    changing_s : float
        Seconds of training on a network that changes.
    device : str, optional
        Device profile; default: that called like the task.
    """

    name: str
    task: str
    steps: int
    low_rank_task: str | None = None
    changing_s: float = 0.0
    device: str | None = None


_LOW_RANK = ("powersgd-4", "netsense")
_EVERYWHERE = dict.fromkeys(NETWORKS, _ALL)
_FULL_RUN = (
    (Model("resnet18", "resnet18", 30, changing_s=40.0), _EVERYWHERE),
    (Model("vgg16", "vgg16-half", 20, changing_s=120.0), _EVERYWHERE),
)
_QUICK_RUN = (
    # a quarter of the widths is too little for ResNet18: frames of 1 ms make steps 5 % longer
    (
        Model("resnet18", "resnet18-half", 10, "resnet18", changing_s=6.0),
        {
            "200m": _ALL,
            "500m": ("allreduce", "netsense"),
            "800m": ("allreduce", "netsense"),
            "10g": ("allreduce", "netsense-paper", "netsense"),
            "degrading": _FEW,
            "fluctuating": ("allreduce", "netsense"),
        },
    ),
    (
        Model("vgg16", "vgg16-quarter", 6, "vgg16-half"),
        {
            "200m": ("allreduce", "netsense"),
            "500m": (*_FEW, "powersgd-4"),
            "800m": ("netsense",),
            "10g": ("allreduce", "netsense"),
        },
    ),
)
#: model: what is held against the full size, network, steps
_PROOFS = {"resnet18": ("resnet18-half", "200m", 5), "vgg16": ("vgg16-quarter", "500m", 2)}
#: The accuracy part trains this task, which stands for ResNet18.
_LEARNER = Model("resnet18", "fashion-cnn", 300, device="resnet18-scaled")
_TARGET = {False: 0.8, True: 0.7}  # in brief there are fewer steps


def reproduction(quick: bool) -> Sweep:
    """Return the cells of the reproduction, in full or in brief."""
    part = _QUICK_RUN if quick else _FULL_RUN
    variations = [v for model, wanted in part for v in _throughput(model, wanted)]
    variations += [*_proofs(part), *_accuracy(quick)]
    name = "reproduce-quick" if quick else "reproduce"
    return Sweep(name, "The paper's comparison on its models and networks", tuple(variations))


def _throughput(model: Model, wanted: dict[str, tuple[str, ...]]) -> Iterator[Variation]:
    for network, labels in wanted.items():
        larger = model.low_rank_task if not NETWORKS[network].changes else None
        wide = [label for label in labels if larger and label in _LOW_RANK]
        if rest := [label for label in labels if label not in wide]:
            yield _variation("throughput", model, network, rest, model.steps)
        if wide:
            other = Model(model.name, str(larger), model.steps)
            yield _variation("throughput", other, network, wide, model.steps)


def _proofs(part: Iterable[tuple[Model, Any]]) -> Iterator[Variation]:
    """Yield one more size per model, to be held against that of the comparison."""
    for model, _ in part:
        task, network, steps = _PROOFS[model.name]
        size = model.name if model.task != model.name else task
        yield _variation("proof", Model(model.name, size, steps), network, ("allreduce",), steps)


def _accuracy(quick: bool) -> Iterator[Variation]:
    labels = ("allreduce", "topk-0.01", "netsense") if quick else _ALL
    steps = 150 if quick else _LEARNER.steps
    # at a higher rate, or without a warm-up, a seed decides more than the method does
    every = 15 if quick else 10
    learning = {"eval_every": every, "lr": 0.05, "lr_warmup_steps": 30, "momentum": 0.9}
    for network in ("500m",) if quick else [n for n in NETWORKS if n != "10g"]:
        yield _variation(
            "accuracy", _LEARNER, network, labels, steps, learning,
            seeds=[0] if quick else [0, 1, 2], target_accuracy=_TARGET[quick],
        )  # fmt: skip


def _variation(
    part: str,
    model: Model,
    name: str,
    labels: Iterable[str],
    steps: int,
    learning: dict[str, Any] | None = None,
    **more: Any,
) -> Variation:
    """Return one network with one model, scaled to that model's size."""
    device = model.device or model.task
    network, factor = NETWORKS[name], load_profile(device)[1]
    ends = network.changes and part == "throughput"
    workload: dict[str, Any] = {
        "task": model.task,
        "device": device,
        "batch_size": 32,
        # a network that changes is met by all methods for the same time
        "steps": 100_000 if ends else steps,
        **(learning or {"lr": 0.01, "momentum": 0.0, "schedule": "constant"}),
    }
    seconds = model.changing_s if ends else 0.0
    if ends:
        workload["stop_s"] = seconds
    elif network.changes:  # the same changes for all, over about as long as dense training needs
        seconds = 0.25 * steps
    data = {
        "description": f"{model.name} on {name}: {part}",
        "world_size": RANKS,
        "topology": {
            "builder": "star",
            "rate_mbps": round(network.rate_mbps / factor, 6),
            "delay_ms": network.delay_ms,
            "queue": {"bytes": max(24 * 1514, round(network.queue_bytes / factor))},
            **({"extra_hosts": 2} if network.flows else {}),
        },
        "events": _events(network, factor, seconds),
        "traffic": _traffic(network, seconds),
        "workload": workload,
        "methods": [METHODS[label] for label in labels],
        "timeout_s": 7200.0,
        **more,
    }
    scenario = check(data, f"{part}-{model.task}")
    axes: dict[str, str | float] = {
        "part": part,
        "model": model.name,
        "network": name,
        "task": model.task,
        "factor": round(factor, 3),
    }
    return Variation(scenario, name, axes)


def _events(network: Network, factor: float, seconds: float) -> list[dict[str, Any]]:
    parts = len(network.falls_to) + 1
    return [
        {
            "kind": "set",
            "at_s": round(seconds * (at + 1) / parts, 3),
            "links": "h*-s0",
            "rate_mbps": round(rate / factor, 6),
        }
        for at, rate in enumerate(network.falls_to)
    ]


def _traffic(network: Network, seconds: float) -> list[dict[str, Any]]:
    """Return flows into and out of two of the hosts, with a pause after each part."""
    made = []
    for at, flows in enumerate(network.flows):
        start_s = seconds * at / len(network.flows)
        stop_s = start_s + 0.85 * seconds / len(network.flows)
        for source, sink in (("x0", "h1"), ("h2", "x1")):
            made.append(
                {
                    "kind": "iperf3-tcp",
                    "source": source,
                    "sink": sink,
                    "flows": flows,
                    "congestion_control": "cubic",
                    "start_s": round(start_s, 3),
                    "stop_s": round(stop_s, 3),
                }
            )
    return made
