"""The job in Flower's simulation (Ray): `python flower.py FOLDER VEHICLES ROUNDS STEPS BATCH`."""

import os
import sys

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import common  # type: ignore[import-not-found]
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

FOLDER = os.path.abspath(sys.argv[1])
VEHICLES, ROUNDS, STEPS, BATCH = map(int, sys.argv[2:6])
client, server = ClientApp(), ServerApp()


@client.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """Train on the data of one partition."""
    torch.set_num_threads(1)
    images, labels = common.load(FOLDER, int(context.node_config["partition-id"]))
    model = common.cnn()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    common.train(model, images, labels, STEPS, BATCH, 0.1)
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(labels)})}
    return Message(content=RecordDict(content), reply_to=message)


@server.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Average."""
    FedAvg(fraction_evaluate=0.0).start(grid, ArrayRecord(common.cnn().state_dict()), num_rounds=ROUNDS)


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=VEHICLES, backend_config=resources)
