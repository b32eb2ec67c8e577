"""The sections of a scenario's file below its top: what is trained, and by which methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Cell",
    "Method",
    "Positive",
    "Share",
    "Straggler",
    "Strict",
    "Workload",
    "default_label",
]

_MOST = 2**31 - 1  # of a whole number; none that makes sense is larger
Finite = Annotated[float, Field(allow_inf_nan=False)]
OptionValue = bool | int | Finite | str
Whole = Annotated[int, Field(strict=True, ge=1, le=_MOST)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class Strict(BaseModel):
    """A section that knows all its keys, converts no types and is never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Straggler(Strict):
    """A rank that is slower than the others.

    Parameters
    ----------
    rank : int
    extra_ms : float
        Compute time it needs more than they do, per step.
    """

    rank: Annotated[int, Field(strict=True, ge=0, lt=1024)]
    extra_ms: Positive


class Workload(Strict):
    """What every rank trains.

    Parameters
    ----------
    task : str
        Name of a workload in `experiments.workloads`.
    batch_size : int
        Samples per rank and step.
    steps : int
        Optimizer steps.
    eval_every : int, optional
        Steps between evaluations; the last step is always evaluated. None: only then.
    device : str
        Device profile in `experiments/devices` whose compute times are charged.
    optimizer : {"sgd", "adam"}
    lr : float
        Learning rate.
    momentum : float
        For SGD.
    weight_decay : float
    schedule : {"constant", "cosine"}
        Of the learning rate: constant, or down to zero over the run.
    lr_warmup_steps : int
        First steps, in which the learning rate rises evenly to what the schedule says.
    straggler : Straggler, optional
        One rank that computes more slowly.
    stop_s : float, optional
        Seconds of training after which it ends, though there be steps left.
    """

    task: str
    batch_size: Whole
    steps: Whole
    eval_every: Whole | None = None
    device: str
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: Positive = 0.05
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    schedule: Literal["constant", "cosine"] = "cosine"
    lr_warmup_steps: Annotated[int, Field(ge=0, le=_MOST)] = 0
    straggler: Straggler | None = None
    stop_s: Positive | None = None


class Method(Strict):
    """A compression method under test, with a label that is unique in the scenario."""

    name: str
    label: str = ""
    options: dict[str, OptionValue] = {}


@dataclass(frozen=True)
class Cell:
    """One method and one seed of a scenario."""

    label: str
    method: str
    options: dict[str, OptionValue]
    seed: int

    @property
    def key(self) -> str:
        """Name of the cell's directory."""
        return f"{self.label}-s{self.seed}"


def default_label(arm: Method) -> str:
    """Return the method's name followed by the values of its options."""
    return "-".join([arm.name, *(str(v).lower() for v in arm.options.values())])
