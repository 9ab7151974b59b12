"""How close distributions over the vocabulary are to the uniform one: 0 for the uniform one, less for others."""

from __future__ import annotations

import torch


#: The statistics of [`flatness`], in their order.
FLATNESS = ("uniform_log_ratio", "log_affinity")
#: Logits so far below the largest mean that a token is impossible: those of possible ones do not get there, not even
#: divided by the least temperature.
IMPOSSIBLE = -1000.0


def flatness(shifted: torch.Tensor) -> torch.Tensor:
    """
    Two measures of each row of logits whose largest entry is 0, over its V possible tokens: (rows, 2).

    - `uniform_log_ratio`, `mean_v ln(V p_v)`: minus the Kullback-Leibler divergence KL(uniform || p);
    - `log_affinity`, `ln sum_v sqrt(q_v / V)`, with q the distribution p at temperature 2: minus half the Rényi
      divergence of order 1/2 of q from the uniform distribution; its exponential is the cosine of their angle, of
      which the Fisher-Rao distance is a multiple.
    """
    size, total, excess = shifted.shape[1], shifted.exp().sum(-1), shifted.sum(-1)
    possible: torch.Tensor | float = float(size)
    if shifted.numel() and shifted.amin() <= IMPOSSIBLE:
        kept = shifted > IMPOSSIBLE
        possible, excess = kept.sum(-1).to(shifted), shifted.where(kept, 0.0).sum(-1)
    quarter = (shifted / 4).exp_()  # the square root of q, but for a constant
    log_size = torch.as_tensor(possible, dtype=shifted.dtype, device=shifted.device).log()
    affinity = quarter.sum(-1).log() - (torch.linalg.vecdot(quarter, quarter).log() + log_size) / 2
    return torch.stack([excess / possible - total.log() + log_size, affinity], -1)
