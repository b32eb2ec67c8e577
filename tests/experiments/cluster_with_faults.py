"""The cluster's program with a fault in one rank: ``cluster_with_faults.py KIND … ``.

``raise``: rank 1 fails in the second step of `allreduce`. ``die``: it is gone in that of
`netsense`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from experiments import cluster, rank

KIND = sys.argv[1]
LABEL = {"raise": "allreduce", "die": "netsense"}[KIND]


class _Faulty(rank._Trainer):
    def step(self, step: int) -> bool:
        if self.spec["label"] == LABEL and self.where.rank == 1 and step == 1:
            if KIND == "die":
                os._exit(9)
            raise ValueError("this rank is faulty")
        return super().step(step)


rank._Trainer = _Faulty  # type: ignore[misc]
cluster._TIMEOUT_S = 4.0


def main() -> Any:
    return cluster.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
