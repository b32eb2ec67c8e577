"""The one module that speaks Mininet: a `Topology` becomes hosts, bridges and links.

Links are plain veth pairs here; what they do to frames is `shaping`'s business. Addresses,
neighbours and kernel settings are applied in one batch per host, since every command in a
guest costs wall time.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mininet.cli import CLI
from mininet.link import Intf, Link
from mininet.log import lg, setLogLevel
from mininet.net import Mininet
from mininet.node import Host, Node
from mininet.nodelib import LinuxBridge
from mininet.topo import Topo

from topologies import Topology
from topologies.shape import FRAME_BYTES

from .aqm import is_split
from .namespaces import entered

__all__ = ["SYSCTLS", "address", "built_net", "interface", "interfaces", "prompt"]

#: Set in each host's network namespace and recorded in the manifest. Buffers hold several
#: bandwidth-delay products and queues; no connection learns from one before it.
SYSCTLS = {
    "net.ipv4.tcp_rmem": "4096 1048576 67108864",
    "net.ipv4.tcp_wmem": "4096 1048576 67108864",
    "net.ipv4.tcp_no_metrics_save": "1",
}

_TRAIN_S = 0.0005
_FEWEST_SEGMENTS, _MOST_SEGMENTS = 8, 43


class _LateShell(Node):
    """A Mininet node whose shell starts when it is first asked a command.

    Four programs are started for a shell, which is most of what a net takes in a guest, and a
    run asks for none: they are for a person who looks around.
    """

    #: how a program is run where the node's shell belongs
    _enter: tuple[str, ...] = ()
    pid: int

    def startShell(self, mnopts: str | None = None) -> None:
        """Start none yet."""

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:
        """Send a command to the node's shell, started if need be."""
        if self.shell is None:
            pid = self.pid
            super().startShell()
            self.pid = pid
        super().sendCmd(*args, **kwargs)

    def _popen(self, cmd: list[str], **params: Any) -> subprocess.Popen:
        if cmd[0] == "mnexec" and "env" in cmd[:3]:  # the node's shell, not a command in it
            params |= {"start_new_session": True, "close_fds": True}
            cmd = [*self._enter, *cmd[cmd.index("env") :]]
        return super()._popen(cmd, **params)


class Container(_LateShell, Host):
    """A host with network, mount, PID, UTS and IPC namespaces and a host name of its own.

    They last as long as the process that holds them, which ends when nobody can write to it any
    more: with the process that built the net, however that ends.
    """

    def startShell(self, mnopts: str | None = None) -> None:
        """Make the namespaces; `pid` is in all of them but the PID namespace of its children."""
        unshare = ["unshare", "--net", "--uts", "--ipc", "--pid", "--mount-proc"]
        holder = subprocess.Popen(
            [*unshare, "--fork", "--kill-child", "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        if holder.stdout.read(1) != b"\n":
            raise RuntimeError(f"{self.name}: no namespaces of its own; unshare: {holder.wait()}")
        self._holder = holder
        self.pid = holder.pid
        enter = ["nsenter", "--target", str(self.pid), "--net", "--uts", "--ipc", "--mount"]
        self._enter = (*enter, "--pid")

    def terminate(self) -> None:
        """End the shell, if there is one, and the namespaces."""
        super().terminate()
        self._holder.kill()
        self._holder.communicate()

    def config(self, **params: Any) -> dict:
        """Do nothing one by one: `_configure` does it in one batch."""
        return {}


class Cable(Link):
    """A veth pair; `_configure` lays all of them in one batch.

    Mininet would run one command each in the shell of one end, where the other's process id
    means nothing once hosts have PID namespaces.
    """

    @classmethod
    def makeIntfPair(cls, *ends: Any, **params: Any) -> None:
        """Do nothing one by one."""


class Port(Intf):
    """An interface whose address is known and applied later, together with all others."""

    def config(self, **params: Any) -> dict:
        """Do nothing one by one."""
        return {}

    def updateIP(self) -> str | None:
        """Return the address, which `_configure` knows and no command needs to tell."""
        return self.ip


class Bridge(_LateShell, LinuxBridge):
    """A learning bridge, started by one batch of `ip` instead of a dozen commands."""

    @classmethod
    def setup(cls) -> None:
        """Need nothing: Mininet would look for `brctl`, which `ip` makes superfluous."""

    def startShell(self, mnopts: str | None = None) -> None:
        """Be where this process is: a bridge has no namespaces of its own."""
        self.pid = os.getpid()

    def start(self, _controllers: list) -> None:
        """Create the bridge and enslave its ports."""
        ports = [port.name for port in self.intfList() if port.name != "lo"]
        lines = [
            f"link add {self.name} type bridge stp_state {int(self.stp)} mcast_snooping 0",
            f"link set {self.name} up",
            *(f"link set {port} master {self.name} up" for port in ports),
        ]
        _batch(lines)


class _SpecTopo(Topo):
    def build(self, spec: Topology) -> None:
        for i, host in enumerate(spec.hosts):
            self.addHost(host.name, ip=f"{address(spec, host.name)}/16", mac=_mac(i, 0))
        for switch in spec.switches:
            self.addSwitch(switch.name, stp=spec.stp)
        for i, link in enumerate(spec.links):
            # fixed addresses: a random one would change what repeats
            self.addLink(link.a, link.b, addr1=_mac(i, 1), addr2=_mac(i, 2))


def _mac(number: int, end: int) -> str:
    return f"02:00:00:{end:02x}:{number >> 8:02x}:{number & 255:02x}"


def address(spec: Topology, host: str) -> str:
    """Return the IPv4 address of `host`: 10.0.0.1 for the first host of the topology."""
    number = [h.name for h in spec.hosts].index(host) + 1
    return f"10.0.{number >> 8}.{number & 255}"


def _batch(lines: list[str]) -> None:
    """Run `ip` on many lines and raise with its own words if any of them fails."""
    result = subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(lines), text=True, capture_output=True
    )
    if result.returncode:
        raise RuntimeError(f"ip: {result.stderr.strip()}")


def interfaces(net: Mininet, spec: Topology) -> dict[str, tuple[Intf, Intf]]:
    """Return, per link name, the interfaces at its `a` and at its `b`."""
    found = {}
    for link in spec.links:
        pair = next(
            (mn_link.intf1, mn_link.intf2)
            for mn_link in net.links
            if {mn_link.intf1.node.name, mn_link.intf2.node.name} == {link.a, link.b}
        )
        found[link.name] = pair if pair[0].node.name == link.a else (pair[1], pair[0])
    return found


def interface(net: Mininet, host: str) -> str:
    """Return the name of the host's only interface."""
    return net.get(host).defaultIntf().name


def _segments(spec: Topology, host: str, segmentation: str) -> int | None:
    """Return how many frames TCP may hand over as one packet; None is the kernel's own limit.

    The guest's netem times such a packet as its frames, but its receiver gets them all at once:
    the end of one message waits for the beginning of the next. Half a millisecond on the link
    keeps that small, where 64 KB at 200 Mbit/s would take 2.6 ms; shorter packets wake the
    receiver more often, which costs wall time. A managed queue takes a packet for one frame.
    """
    shapes = [shape for link in spec.links for _, _, shape in link.directions()]
    if segmentation == "off" or (segmentation == "auto" and any(map(is_split, shapes))):
        return 1
    if segmentation == "on":
        return None
    rates = [
        shape.rate_mbps
        for link in spec.links
        for sender, _, shape in link.directions()
        if host in (link.a, link.b) and sender == host
    ]
    frames = int(max(rates) * 1e6 / 8 * _TRAIN_S / FRAME_BYTES)
    return None if frames >= _MOST_SEGMENTS else max(frames, _FEWEST_SEGMENTS)


def _configure(net: Mininet, spec: Topology, segmentation: str) -> None:
    """Lay the cables; give each host its address, all neighbours, its name and settings."""
    cables = [
        " type veth peer ".join(
            f"{word}name {end.name} address {end.mac} netns {end.node.pid}"
            for word, end in (("link add ", cable.intf1), ("", cable.intf2))
        )
        for cable in net.links
    ]
    _batch(cables)
    settings = dict(SYSCTLS)
    if any(shape.ecn for link in spec.links for _, _, shape in link.directions()):
        settings["net.ipv4.tcp_ecn"] = "1"
    ports = {host.name: net.get(host.name).defaultIntf() for host in spec.hosts}
    for host in spec.hosts:
        port = ports[host.name]
        port.ip = address(spec, host.name)  # Mininet's command line puts it in for the name
        lines = [
            "link set lo up",
            f"addr add {address(spec, host.name)}/16 dev {port.name}",
            f"link set {port.name} up",
        ]
        # a lost ARP packet would delay a lossy run by seconds
        lines += [
            f"neigh add {address(spec, name)} lladdr {other.mac} dev {port.name} nud permanent"
            for name, other in ports.items()
            if name != host.name
        ]
        segments = _segments(spec, host.name, segmentation)
        if segments is not None:
            size = segments * FRAME_BYTES
            lines.append(f"link set {port.name} gso_max_segs {segments} gso_max_size {size}")
        with entered(net.get(host.name).pid, "net", "uts"):
            _batch(lines)
            socket.sethostname(host.name)
            for key, value in settings.items():
                Path("/proc/sys", *key.split(".")).write_text(value)


@contextmanager
def built_net(spec: Topology, segmentation: str = "auto") -> Iterator[Mininet]:
    """Build the net of `spec`, unshaped, and end its hosts at the end.

    Bridges go with the network namespace that this is called in, which is a guest's or one that
    ends with the calling process.

    With `segmentation` off, TCP hands over single frames; on, packets of up to 64 KB; auto, as
    much as does not show. The guest's netem times, counts and drops the frames they stand for.
    """
    setLogLevel("error")
    net = Mininet(
        topo=_SpecTopo(spec),
        host=Container,
        switch=Bridge,
        link=Cable,
        intf=Port,
        controller=None,
        build=True,
    )
    try:
        _configure(net, spec, segmentation)
        net.start()
        yield net
    finally:
        for node in (*net.hosts, *net.switches):
            node.terminate()


def prompt(net: Mininet, script: Path | None = None) -> None:
    """Let a person look around by Mininet's command line, or run the commands of a file."""
    setLogLevel("output")
    lg.handlers[0].setStream(sys.stdout)
    if script is None:
        CLI(net)
        return
    with open(os.pipe()[0]) as silence:  # Mininet hands its input to what runs in a host
        CLI(net, stdin=silence, script=str(script))
