"""A sixth algorithm: AFL-Coin prunes like 2CEOAFL but tosses a fair coin for raw or quantised.

Run it beside the others from this folder:

    skyfed run smoke --set 'algorithms=["2ceoafl", "own_algorithm:AFLCoin"]' --out coin
"""

from skyfed.algorithms.twoceoafl import TwoCEOAFL


class AFLCoin(TwoCEOAFL):
    """2CEOAFL with a coin."""

    title = "AFL-Coin"

    def raw_probability(self, delta: float) -> float:
        """Return the probability of a raw upload; the drawn pruning ratio does not matter here."""
        return 0.5
