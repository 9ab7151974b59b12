"""
To import before torchvision where it does not fit torch: a part of `peers.py`.

Beside a torch for processors pip installs a torchvision built for CUDA, whose library does not load. Then its
operators must be declared by hand, or nothing that imports torchvision can be imported. None of them is called here.
"""

import torch


LIBRARY = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
