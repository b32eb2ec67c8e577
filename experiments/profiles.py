"""Device profiles: what a step of one model costs, read from YAML and checked.

``experiments/devices/<name>.yaml`` holds the fields of `experiments.accelerator.DeviceProfile`. A
profile with ``like: <name>`` is that of a smaller model that stands for a larger one: compute
times are the larger one's, and bytes of gradient per second shrink by the ratio of the
parameters, so that encoding takes as long as it would there.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

from .errors import UserError
from .methods import REAL_DEVICES, device_names, is_adaptive
from .mistakes import no_such
from .yamlfile import read_mapping

__all__ = ["DEVICES", "load_profile", "needed_mb"]

DEVICES = Path(__file__).with_name("devices")
_TIMES = ("forward_s", "backward_s", "optimizer_s")
_RATES = ("encode_bytes_per_s", "decode_bytes_per_s")
_TEXTS = ("description", "source", "formula")


def _read(name: str, key: str) -> dict[str, Any]:
    path = DEVICES / f"{name}.yaml"
    if not path.is_file():
        profiles = [x for x in device_names() if x not in REAL_DEVICES]
        raise UserError(f"{key}: {no_such(name, profiles)}")
    return read_mapping(path, [*_TIMES, *_RATES, *_TEXTS])


def load_profile(name: str, key: str = "workload.device") -> tuple[dict[str, Any], float]:
    """Return a profile as plain data, and the factor by which its model is smaller.

    Parameters
    ----------
    name : str
        Of a file in ``experiments/devices``.
    key : str
        What the name was given for, for the message.

    Raises
    ------
    UserError
        No such profile, or a value in it that cannot be.
    """
    data = _read(name, key)
    like = data.pop("like", None)
    scale = float(data.pop("scale", 1.0))
    if like is not None:
        base, _ = load_profile(str(like), f"{name}.yaml: like")
        scale = base["parameters"] / data["parameters"]
        rates = {
            field: {codec: rate / scale for codec, rate in base[field].items()} for field in _RATES
        }
        data = {**base, **rates, **data}
    _check(name, data)
    return data, scale


def _check(name: str, data: dict[str, Any]) -> None:
    for field in (*_TIMES, *_RATES, *_TEXTS):
        if field not in data:
            raise UserError(f"{name}.yaml: {field}: is missing")
    for field in _TIMES:
        _positive(name, field, data[field], zero=True)
    for field in _RATES:
        if "default" not in data[field]:
            raise UserError(f"{name}.yaml: {field}: expected a rate for default")
        for codec, rate in data[field].items():
            _positive(name, f"{field}.{codec}", rate)
    if data.setdefault("kind", "estimate") not in ("estimate", "measured"):
        raise UserError(f"{name}.yaml: kind: expected estimate or measured; got '{data['kind']}'")
    curve = data.setdefault("backward_curve", [[0.0, 0.0], [1.0, 1.0]])
    rising = all(a[0] <= b[0] and a[1] <= b[1] for a, b in itertools.pairwise(curve))
    if not rising or list(curve[0]) != [0, 0] or list(curve[-1]) != [1, 1]:
        raise UserError(f"{name}.yaml: backward_curve: expected to rise from [0, 0] to [1, 1]")


def _positive(name: str, field: str, value: object, *, zero: bool = False) -> None:
    good = isinstance(value, (int, float)) and math.isfinite(value)
    if not good or not (value > 0 or (zero and value == 0)):  # type: ignore[operator]
        raise UserError(f"{name}.yaml: {field}: expected a number above 0; got {value!r}")


def needed_mb(parameters: int | None, world_size: int, method: str) -> int | None:
    """Return the guest memory (MB) that `world_size` replicas need; None is the usual.

    Parameters, gradients and a copy in flight: three times the parameters. What compresses keeps
    its error feedback and what it selects from, too: five times. A method that changes between
    codecs keeps what each of them holds: ten times. Pages are taken from the host only when
    touched.
    """
    if parameters is None or parameters < 5_000_000:
        return None
    copies = 3 if method == "allreduce" else 10 if is_adaptive(method) else 5
    return 3072 + world_size * (384 + copies * 4 * parameters // 2**20)
