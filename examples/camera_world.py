"""A world of one's own: vehicles learn from pictures that a camera leaves in a folder while the mission goes on.

`skyfed run smoke --set world.use=examples/camera_world.py:CameraWorld`, with SKYFED_CAMERA naming a folder that has
`vehicle-0/LABEL/*.png`, `vehicle-1/…` and so on; LABEL is the number of a class. On a fleet each vehicle needs its own
folder only. A vehicle whose folder is empty trains on the task's samples, as in the simulated world.
"""

import os
from pathlib import Path

import numpy as np
from PIL import Image

from skyfed import Samples, World


class CameraWorld(World):
    """The simulated world, except for what vehicles see."""

    def observe(self, vehicle, t):
        """Return all pictures that are in a vehicle's folder by now."""
        root = Path(os.environ.get("SKYFED_CAMERA", "camera")) / f"vehicle-{vehicle}"
        files = sorted(path for path in root.glob("*/*.png") if path.parent.name.isdigit())
        if not files:
            return super().observe(vehicle, t)
        side = self.task.shape[-1]
        pictures = [Image.open(path).convert("RGB").resize((side, side)) for path in files]
        labels = np.array([int(path.parent.name) for path in files], np.uint8)
        return Samples(np.stack([np.asarray(picture).transpose(2, 0, 1) for picture in pictures]), labels, labels)
