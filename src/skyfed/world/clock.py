"""One vehicle's round on the mission clock: fly, sense, receive, train, send, wait. Seconds and joules are modelled."""

from dataclasses import dataclass, replace

from skyfed.learning.settings import TrainSettings

PHASES = ("sense", "receive", "train", "send")  # after the flight, in this order; then the vehicle waits


@dataclass(frozen=True)
class Effort:
    """What a vehicle did in a round: dense local rounds that its work amounts to, FLOPs of one, bytes that it sent."""

    rounds: float
    flops: float
    sent: int

    def after(self, before: "Effort | None") -> "Effort":
        """Return this work together with what the vehicle did before in the same round."""
        return self if before is None else Effort(before.rounds + self.rounds, self.flops, before.sent + self.sent)


@dataclass(frozen=True)
class Spending:
    """One vehicle's seconds and joules in one round.

    fly      to the round's place, take-off included      sense    looking at the ground
    receive  what the station sends down                  train    on board
    send     the upload                                   hover    joules of staying in the air after the flight
    home     the way home and landing, where it goes home in this round
    wait     seconds until the round ends

    The joules of sense, receive, train and send are what camera, radio and computer take; staying in the air meanwhile
    is `hover`.
    """

    fly_seconds: float = 0.0
    sense_seconds: float = 0.0
    receive_seconds: float = 0.0
    train_seconds: float = 0.0
    send_seconds: float = 0.0
    wait_seconds: float = 0.0
    home_seconds: float = 0.0
    fly_joules: float = 0.0
    hover_joules: float = 0.0
    receive_joules: float = 0.0
    train_joules: float = 0.0
    send_joules: float = 0.0

    @property
    def seconds(self) -> float:
        """From the start of the round to the end of the upload."""
        return self.fly_seconds + self.sense_seconds + self.receive_seconds + self.train_seconds + self.send_seconds

    @property
    def joules(self) -> float:
        """All that the battery gives."""
        return self.fly_joules + self.hover_joules + self.receive_joules + self.train_joules + self.send_joules

    def until(self, end: float) -> "Spending":
        """Return the round as it is when it ends after `end` seconds: work that would last longer is broken off."""
        if self.seconds <= end:
            return replace(self, wait_seconds=end - self.seconds)
        left, changed = max(0.0, end - self.fly_seconds), {}
        for phase in PHASES:
            wanted = getattr(self, f"{phase}_seconds")
            spent = min(wanted, left)
            if spent < wanted:
                changed[f"{phase}_seconds"] = spent
                if phase != "sense":
                    changed[f"{phase}_joules"] = getattr(self, f"{phase}_joules") * spent / wanted
            left -= spent
        return replace(self, wait_seconds=0.0, **changed)


def round_flops(train: TrainSettings, multiplications: float, held: int) -> float:
    """FLOPs of one dense local round: forward and twice that backward, two for a multiply-add.

    held  pictures that the vehicle has; a mini-batch cannot have more
    """
    return 6.0 * multiplications * min(train.batch_size, held) * train.batches_per_round


def round_end(turns: list[Spending], deadline: float | None) -> float:
    """Return how long a round lasts: until the last upload, or until the deadline where the station closes at it.

    A round never ends before everybody has flown to its place and looked at the ground.
    """
    last = max((turn.seconds for turn in turns), default=0.0)
    arrived = max((turn.fly_seconds + turn.sense_seconds for turn in turns), default=0.0)
    return last if deadline is None else max(arrived, min(last, deadline))
