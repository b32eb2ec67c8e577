"""Optional host kernels in C++, built with torch's own extension mechanism.

Off unless the environment says ``NETSENSEML_NATIVE=1``: they need a C++ compiler and ninja, and
the first use builds them (about a minute; torch keeps the result). Results are equal bit by bit to
the torch fallback, so ranks with and without them may train together.
"""

from __future__ import annotations

import functools
import os
import pathlib
from typing import Any

__all__ = ["kernels"]


@functools.cache
def kernels() -> Any:
    """The extension module, or None when it was not asked for.

    Raises
    ------
    RuntimeError
        It was asked for and could not be built.
    """
    if os.environ.get("NETSENSEML_NATIVE", "0") != "1":
        return None
    from torch.utils import cpp_extension

    source = pathlib.Path(__file__).with_name("native.cpp")
    try:
        return cpp_extension.load(
            name="netsenseml_native",
            sources=[str(source)],
            extra_cflags=["-O3", "-march=native", "-ffp-contract=off"],
        )
    except (OSError, ImportError, RuntimeError) as error:
        first = str(error).splitlines()[0]
        raise RuntimeError(
            f"NETSENSEML_NATIVE=1: the C++ kernels could not be built ({first}); "
            "install a C++ compiler and ninja, or unset the variable"
        ) from error
