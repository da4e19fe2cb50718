"""A planner of one's own: a patrol that visits the classes in turn, whatever psi says.

Compare it with the exact one, from this folder:

    skyfed plan smoke --set flight.method=own_planner:patrol --set flight.vmax=unlimited --out patrol
    skyfed plan smoke --out exact

A planner is a function from a problem to a plan. skyfed verifies every plan against C1-C6. If a planner fails for some
vehicles, these get `greedy` flights, with a warning; if it fails for all, the command ends with exit code 1.
"""

import time

import numpy as np

from skyfed.flight import IDLE, Options, Plan, Problem
from skyfed.flight.place import PlacementError, place


def patrol(problem: Problem, options: Options) -> Plan:
    """Visit class 0, 1, 2, …, 0, 1, … a round each; a visit that cannot be flown is left out."""
    begin = time.process_time()
    association = np.arange(problem.rounds) % problem.classes
    while True:
        try:
            positions = place(problem, association)  # where inside the discs: for most samples
            break
        except PlacementError as error:
            association[error.rounds[-1]] = IDLE
    return Plan(
        positions,
        association,
        objective=problem.objective(association),
        bound=np.inf,  # none is proven
        seconds=time.process_time() - begin,
        method="patrol",
    )
