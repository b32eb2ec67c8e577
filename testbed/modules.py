"""Load what the distribution's guest kernel keeps in modules, without any program to do so.

The prebuilt kernel has netem, veth and bridges as modules beside it; machines that never load a
module have no `insmod`, and asking the kernel itself takes one call.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

__all__ = ["MODULES", "ModuleError", "load"]

#: Where Debian's and Ubuntu's package ``user-mode-linux`` puts them, by kernel release
MODULES = Path("/usr/lib/uml/modules")
_WANTED = (
    "bridge",
    "veth",
    "ifb",
    *("sch_netem", "sch_tbf", "sch_htb", "sch_ingress", "sch_fq", "sch_fq_codel", "sch_red"),
    *("cls_u32", "cls_matchall", "act_mirred"),
    *("tcp_bbr", "tcp_bic", "tcp_dctcp", "tcp_htcp", "tcp_westwood"),
)
#: present only because the bridge needs it: no router solicitations on measured links
_PARAMETERS = {"ipv6": b"disable=1"}
_INIT_MODULE = 175  # on x86-64, the only machine that User-Mode Linux runs on here


class ModuleError(Exception):
    """The kernel does not take a module; the text says which and why."""


def _order(folder: Path) -> list[str]:
    """Return the files to load, what each needs before it."""
    needs: dict[str, list[str]] = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        path, _, before = line.partition(":")
        needs[path] = before.split()
    by_name = {Path(path).name.partition(".ko")[0].replace("-", "_"): path for path in needs}
    order: list[str] = []
    for name in _WANTED:
        if name in by_name:
            path = by_name[name]
            # modules.dep lists what is needed last first
            order += [p for p in (*reversed(needs[path]), path) if p not in order]
    return order


def load(root: Path = MODULES) -> None:
    """Load everything that nets are made of into the running kernel.

    Raises
    ------
    ModuleError
        If the modules of this kernel's release are not in `root`, or one is refused.
    """
    folder = root / os.uname().release
    if not (folder / "modules.dep").exists():
        raise ModuleError(f"{folder}: the modules of this kernel are not there")
    libc = ctypes.CDLL(None, use_errno=True)
    for path in _order(folder):
        data = (folder / path).read_bytes()
        name = Path(path).stem
        size = ctypes.c_ulong(len(data))
        if libc.syscall(_INIT_MODULE, data, size, _PARAMETERS.get(name, b"")):
            code = ctypes.get_errno()
            if code != errno.EEXIST:
                raise ModuleError(f"{name}: {os.strerror(code)}")
