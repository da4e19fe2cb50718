"""What an algorithm is: a settings class and a few functions, each with a default but `local`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from skyfed.blocks.aggregate import COLUMNS, aggregate, moved
from skyfed.blocks.tables import Settings
from skyfed.columns import Column
from skyfed.types import Arrays, Model, Singles, Update
from skyfed.wire import MODEL, Message
from skyfed.world import View

if TYPE_CHECKING:  # PyTorch: not before something is trained
    from skyfed.kit import Kit
    from skyfed.learning.engine import Engine

Parts = Mapping[str, Update | Singles]


@dataclass(frozen=True)
class Fleet:
    """What the station knows of its fleet: how many vehicles and rounds, the seed, and the model they train."""

    vehicles: int
    rounds: int
    seed: int
    engine: "Engine"


class Algorithm:
    """Base of all algorithms; a method of your own needs `local`, and what differs from the mean of all vehicles.

    title      as it is shown
    central    whether it is trained on the union of all data, without vehicles
    exchanges  how often station and vehicles talk within a round; after each but the last comes `answer`
    columns    figures that `local` notes, as columns of the table of uploads
    """

    title: ClassVar[str] = ""
    central: ClassVar[bool] = False
    exchanges: ClassVar[int] = 1
    columns: ClassVar[tuple[Column, ...]] = ()
    station_columns: ClassVar[tuple[Column, ...]] = COLUMNS
    Settings: ClassVar[type[Settings]] = Settings

    def __init__(self, settings: Any, fleet: Fleet) -> None:
        """Take the settings, which are of this class's own `Settings`, and the fleet."""
        self.settings, self.fleet = settings, fleet

    def parts(self) -> Mapping[str, int]:
        """Return the vectors of an upload by name: MODEL for one over the model's weights, or a number of entries."""
        return {"update": MODEL}

    def start(self, model: Model) -> Arrays:
        """Return the station's state before round 0."""
        return {"weights": model.weights, "buffers": model.buffers}

    def select(self, t: int, view: View) -> list[int]:
        """Return the vehicles that take part in round t, in ascending order."""
        return view.present

    def radio(self, t: int, view: View, chosen: list[int]) -> Mapping[int, tuple[float, float]]:
        """Return watts and the share of the band for vehicles that shall not have the usual ones.

        Usual are the power of `vehicle.radio`, and an equal share for everybody who takes part.
        """
        return {}

    def send(self, state: Arrays, vehicle: int, t: int) -> Arrays:
        """Return what a vehicle receives in round t."""
        return {"weights": state["weights"], "buffers": state["buffers"]}

    def changes(self, state: Arrays, since: int) -> list[bytes] | None:
        """Return what leads from the content of round `since` to the present one, a change per round; None: unknown.

        A vehicle that has that content is then sent these bytes, and `follow` makes the present one of them.
        """
        return None

    def follow(self, received: Arrays, change: bytes) -> Arrays:
        """Return what a change makes of the content before it. Runs on board; bad bytes raise DecodeError."""
        raise TypeError(f"{type(self).__name__} has no method `follow`")

    def local(self, kit: "Kit", received: Arrays, memory: Arrays) -> tuple[Parts, Arrays]:
        """Return the vectors of a vehicle's upload and its new memory. Runs on board."""
        raise TypeError(f"{type(self).__name__} has no method `local`")

    def train(self, kit: "Kit", state: Arrays) -> Arrays:
        """Return the state after a round of training on all data; only where `central` is set."""
        raise TypeError(f"{type(self).__name__} has no method `train`")

    def answer(self, state: Arrays, messages: list[Message], t: int, exchange: int) -> tuple[Arrays, dict[int, Arrays]]:
        """Return the state and what each vehicle is sent next within the round; only where `exchanges` is above 1."""
        raise TypeError(f"{type(self).__name__} has no method `answer`")

    def step(self, state: Arrays, messages: Iterable[Message], t: int) -> Arrays:
        """Return the station's state after a round: here w - eta * the aggregate of all uploads (Eq. 13)."""
        together = aggregate(messages, self.settings.server, self.fleet.vehicles, state)
        if together is None:
            return state
        weights = moved(state["weights"], together.times(self.settings.train.eta_at(t)))
        return {**state, "weights": weights, "buffers": together.buffers, **together.memory}

    def deliver(self, state: Arrays) -> dict[str, Model]:
        """Return the models that are evaluated and saved, by name."""
        return {"model": Model(state["weights"], state["buffers"])}

    def serves(self, state: Arrays, vehicle: int) -> str:
        """Return the name of the delivered model that a vehicle uses."""
        return next(iter(self.deliver(state)))
