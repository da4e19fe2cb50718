"""An upload as the station sees it: decoded vectors, whose they are, and how much they count."""

from dataclasses import dataclass, field

import numpy as np

from skyfed.types import Singles, Update
from skyfed.wire.codec import entries
from skyfed.wire.reference_model import Reference


@dataclass(frozen=True)
class Message:
    """One vehicle's upload.

    parts    its vectors by name, as the algorithm declared them
    common   the model that it was made from
    weight   what server.alpha gives its vehicle, before weights are rescaled to those who take part
    samples  training samples that the vehicle reports
    notes    what the station finds out about it, for the table of uploads
    """

    vehicle: int
    round: int
    parts: dict[str, Update | Singles]
    reference: Reference
    weight: float = 1.0
    samples: int = 0
    notes: dict[str, float | int | bool | str] = field(default_factory=dict)

    @property
    def update(self) -> Update:
        """The first vector over the model's weights."""
        found = next((part for part in self.parts.values() if isinstance(part, Update)), None)
        if found is None:
            raise ValueError(f"no vector over the model's weights among {', '.join(self.parts)}")
        return found

    def values(self, name: str | None = None) -> Singles:
        """Return the entries of a vector that were sent, those under its mask; of the first if none is named."""
        part = self.update if name is None else self.parts[name]
        return entries(part, self.reference) if isinstance(part, Update) else part

    def vector(self, name: str | None = None) -> Singles:
        """Return all entries of a vector, zero where its mask left them out."""
        part = self.update if name is None else self.parts[name]
        if not isinstance(part, Update) or part.mask is None:
            return self.values(name)
        whole = np.zeros(part.size, np.float32)
        whole[part.places] = self.values(name)
        return whole
