"""VGG16, and the same network with narrower layers.

K. Simonyan, A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
ICLR 2015, configuration D. Without dropout, which has no parameters.
"""

from __future__ import annotations

from torch import nn

__all__ = ["VGG16"]

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # width, convolutions


class VGG16(nn.Sequential):
    """Class scores of images.

    Parameters
    ----------
    narrower : int
        Every width, that of the class scores included, is divided by it: parameters fall with
        its square, and each layer keeps its share of them.

    Notes
    -----
    Input float32 (n, 3, height, width) of at least 32 pixels, output (n, 1000 / narrower). With
    `narrower` 1 it has 138 357 544 parameters, whatever the size of the images: the last
    feature map is pooled to 7 x 7.
    """

    def __init__(self, narrower: int = 1) -> None:
        layers: list[nn.Module] = []
        inside = 3
        for full, count in _STAGES:
            for _ in range(count):
                layers += [nn.Conv2d(inside, full // narrower, 3, padding=1), nn.ReLU()]
                inside = full // narrower
            layers.append(nn.MaxPool2d(2))
        hidden = 4096 // narrower
        super().__init__(
            *layers,
            nn.AdaptiveAvgPool2d(7),
            nn.Flatten(),
            nn.Linear(49 * inside, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1000 // narrower),
        )
