"""What a network *is*: hosts, links, queues, schedules, traffic and traces, as plain data.

Nothing here starts a process or touches the operating system; `testbed` makes it real.
Units are part of every name: ``rate_mbps`` (1 Mbit = 1 000 000 bit), ``delay_ms`` (one way,
per link), ``loss_pct``, ``bytes``; times ``*_s`` are seconds since the first training step.
"""

from .builders import BUILDERS, build, dumbbell, leaf_spine, ring, star, tree, two_sites
from .checks import SpecError
from .events import Fault, LinkEvent, expand_events
from .phases import Phase, phases
from .shape import GilbertElliott, Link, Queue, Shape
from .spec import Host, Switch, Topology
from .traces import read_trace
from .traffic import Flow, Job, Traffic, expand_jobs, expand_traffic

__all__ = [
    "BUILDERS",
    "Fault",
    "Flow",
    "GilbertElliott",
    "Host",
    "Job",
    "Link",
    "LinkEvent",
    "Phase",
    "Queue",
    "Shape",
    "SpecError",
    "Switch",
    "Topology",
    "Traffic",
    "build",
    "dumbbell",
    "expand_events",
    "expand_jobs",
    "expand_traffic",
    "leaf_spine",
    "phases",
    "read_trace",
    "ring",
    "star",
    "tree",
    "two_sites",
]
