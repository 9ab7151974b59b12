from __future__ import annotations

from dataclasses import dataclass

from .base import Objective


@dataclass(frozen=True)
class CrossEntropyPlusEntropy(Objective):
    """
    Error plus predictive entropy (Shamsi et al.): `error + pe_weight * uncertainty`.

    Relations:
        It lowers the entropy of every prediction, right or wrong, so it sharpens: expect a worse calibration than
        [`Plain`]. It is here because it is what CLUE is compared with.
    """

    config_fields = ("pe_weight",)

    pe_weight: float = 1.0

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        return error + self.pe_weight * uncertainty
