"""A sixth algorithm: AFL-Coin prunes like 2CEOAFL but tosses a fair coin for raw or quantised.

Run it beside the others from this folder:

    skyfed run smoke --set 'algorithms=["2ceoafl", "own_algorithm:AFL_COIN"]' --out coin
"""

from skyfed.algorithms import Recipe


def coin(delta: float, setting: float | str) -> float:
    """Return the probability of a raw upload; the drawn pruning ratio does not matter here."""
    return 0.5


AFL_COIN = Recipe("AFL-Coin", prune=True, raw_probability=coin)
