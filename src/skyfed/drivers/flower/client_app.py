"""The vehicles' Flower app: a job in a message, an upload in the reply.

In a resident vehicle (`vehicle_process.py`) everything is loaded already. Flower's own executor starts the app once per
message; that works as well, but reads data and builds the model each time.
"""

from functools import cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from skyfed.drivers.flower.messages import ReplyError, answer, read_order, refuse
from skyfed.drivers.flower.onboard import Vehicle

app = ClientApp()


@app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """Train for one round."""
    try:
        order, content = read_order(message)
        place, vehicle = Path(str(context.node_config["folder"])), int(context.node_config["partition-id"])
        upload, remark = board(place, vehicle).train(order, content)
        return answer(upload, message, remark)
    except ReplyError as error:
        return refuse(str(error), message)
    except (Exception, SystemExit) as error:  # no job ends a vehicle, whatever it names and whatever that raises
        return refuse(f"{type(error).__name__}: {error}", message)


@cache
def board(place: Path, vehicle: int) -> Vehicle:
    """Return the vehicle, loaded once per process."""
    return Vehicle.load(place, vehicle)
