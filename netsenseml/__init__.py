"""Gradient compression for PyTorch DDP that adapts to the network.

>>> import netsenseml
>>> state = netsenseml.register(ddp_model, method="netsense")  # doctest: +SKIP
"""

from netsenseml.failures import PeerFailure
from netsenseml.hooks import hook, make_state, register
from netsenseml.methods import methods, options
from netsenseml.record import StepRecord
from netsenseml.state import HookState

__all__ = [
    "HookState",
    "PeerFailure",
    "StepRecord",
    "hook",
    "make_state",
    "methods",
    "options",
    "register",
]

__version__ = "0.1.0"
