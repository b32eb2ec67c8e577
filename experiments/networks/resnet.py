"""ResNet18, and the same network with narrower layers.

K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, table 1
(18 layers, shortcuts by projection where shapes change).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["ResNet18"]


class _Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Sequential):
    """Class scores of images.

    Parameters
    ----------
    narrower : int
        Every width, that of the class scores included, is divided by it: parameters fall with
        its square, and each layer keeps its share of them.
    classes : int, optional
        Class scores instead of 1000 / `narrower`.

    Notes
    -----
    Input float32 (n, 3, height, width), output (n, classes). With `narrower` 1 and 1000 classes
    it has 11 689 512 parameters.
    """

    def __init__(self, narrower: int = 1, classes: int | None = None) -> None:
        widths = [width // narrower for width in (64, 128, 256, 512)]
        stages: list[nn.Module] = []
        inside = widths[0]
        for number, width in enumerate(widths):
            stages += [_Block(inside, width, 1 if number == 0 else 2), _Block(width, width, 1)]
            inside = width
        super().__init__(
            nn.Conv2d(3, widths[0], 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
            *stages,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(inside, classes or 1000 // narrower),
        )
