# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only (ns-3, which it runs beside, is under the GPL)
"""Messages of a fleet over LTE in ns-3; runs in a Python that has ns3 and needs nothing of skyfed.

Reads JSON from standard input and writes JSON to standard output:
    {"size": bytes, "packet": bytes, "vehicle_power": dBm, "station_power": dBm, "noise_figures": [vehicle, station],
     "blocks": LTE resource blocks, "losses": [[dB per vehicle] per round]}
    {"uplink": [[seconds per vehicle] per round], "downlink": the same, "uplink_sinr": [[dB per vehicle] per round],
     "downlink_sinr": the same, "version": of ns-3}
One cell without fading serves all vehicles. Path losses are those given. RLC runs in acknowledged mode. The scheduler
is proportionally fair. Power control is off: a vehicle has its whole power if it gets all blocks, and a part of it in a
part of them. A message that is not complete after `_PATIENCE` seconds has null for its seconds.
"""

import importlib
import importlib.metadata
import json
import math
import sys
from typing import Any

_SETTLE = 0.5  # seconds from a change of the losses to the messages: several reports of the channel
_STEP, _PATIENCE = 0.02, 20.0  # seconds of simulated time
_PORT = 4000

# what has to be C++: callbacks, and a cast that the bindings do not offer
_HOOKS = """
#include "ns3/lte-module.h"
#include <map>
#include <vector>
namespace skyfed {
using namespace ns3;
std::vector<double> arrived;
std::vector<unsigned long> bytes;
std::map<int, double> up, down;  // by the number that the cell gave to a vehicle
void Receive(int who, Ptr<Socket> socket) {
  Ptr<Packet> packet;
  while ((packet = socket->Recv())) {
    bytes[who] += packet->GetSize();
    arrived[who] = Simulator::Now().GetSeconds();
  }
}
void Listen(Ptr<Socket> socket, int who) { socket->SetRecvCallback(MakeBoundCallback(&Receive, who)); }
void Reset(int count) { arrived.assign(count, 0.0); bytes.assign(count, 0); }
void HearUp(uint16_t, uint16_t rnti, double sinr, uint8_t) { up[rnti] = sinr; }
void HearDown(uint16_t, uint16_t rnti, double, double sinr, uint8_t) { down[rnti] = sinr; }
void Hear(Ptr<NetDevice> station, NetDeviceContainer vehicles) {
  DynamicCast<LteEnbNetDevice>(station)->GetPhy()->TraceConnectWithoutContext("ReportUeSinr", MakeCallback(&HearUp));
  for (uint32_t k = 0; k < vehicles.GetN(); ++k)
    DynamicCast<LteUeNetDevice>(vehicles.Get(k))->GetPhy()->TraceConnectWithoutContext(
        "ReportCurrentCellRsrpSinr", MakeCallback(&HearDown));
}
int Rnti(Ptr<NetDevice> vehicle) { return DynamicCast<LteUeNetDevice>(vehicle)->GetRrc()->GetRnti(); }
void Place(Ptr<Node> node, double x) { node->GetObject<MobilityModel>()->SetPosition(Vector(x, 0.0, 50.0)); }
void Lose(Ptr<SpectrumChannel> channel, Ptr<Node> a, Ptr<Node> b, double loss) {
  DynamicCast<MatrixPropagationLossModel>(channel->GetPropagationLossModel())
      ->SetLoss(a->GetObject<MobilityModel>(), b->GetObject<MobilityModel>(), loss);
}
}
"""


class Cell:
    """One station and its vehicles."""

    def __init__(self, ns: Any, job: dict[str, Any]) -> None:
        self.ns, self.job, self.count = ns, job, len(job["losses"][0])
        ns.cppyy.cppdef(_HOOKS)
        self.hooks = ns.cppyy.gbl.skyfed
        self._defaults()
        self.helper = ns.CreateObject[ns.LteHelper]()
        self.core = ns.CreateObject[ns.PointToPointEpcHelper]()
        self.helper.SetEpcHelper(self.core)
        self.helper.SetSchedulerType("ns3::PfFfMacScheduler")
        self.helper.SetPathlossModelType(ns.TypeId.LookupByName("ns3::MatrixPropagationLossModel"))
        self._build()
        self.lose(job["losses"][0])
        self.helper.Attach(self.devices)
        self._sockets()
        self.hooks.Hear(self.station.Get(0), self.devices)

    def _defaults(self) -> None:
        ns, job = self.ns, self.job
        blocks, (vehicle, station) = job["blocks"], job["noise_figures"]
        for name, value in {
            "LteEnbNetDevice::DlBandwidth": blocks,
            "LteEnbNetDevice::UlBandwidth": blocks,
            "LteEnbPhy::TxPower": job["station_power"],
            "LteEnbPhy::NoiseFigure": station,
            "LteUePhy::TxPower": job["vehicle_power"],
            "LteUePhy::NoiseFigure": vehicle,
            "LteUePhy::EnableUplinkPowerControl": "false",
            "LteEnbRrc::EpsBearerToRlcMapping": "RlcAmAlways",
            "LteRlcAm::MaxTxBufferSize": 100_000_000,
        }.items():
            ns.Config.SetDefault(f"ns3::{name}", ns.StringValue(str(value)))

    def _build(self) -> None:
        ns = self.ns
        self.tower, self.vehicles, self.server = ns.NodeContainer(), ns.NodeContainer(), ns.NodeContainer()
        self.tower.Create(1)
        self.vehicles.Create(self.count)
        self.server.Create(1)
        mobility = ns.MobilityHelper()
        mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel")
        for nodes in (self.tower, self.vehicles):
            mobility.Install(nodes)
        for k in range(self.count):  # losses are given, but ns-3 skips them between nodes at one place
            self.hooks.Place(self.vehicles.Get(k), 1.0 + k)
        stack = ns.InternetStackHelper()
        stack.Install(self.server)
        stack.Install(self.vehicles)
        cable = ns.PointToPointHelper()
        cable.SetDeviceAttribute("DataRate", ns.StringValue("100Gb/s"))
        cable.SetChannelAttribute("Delay", ns.StringValue("0s"))
        ends = cable.Install(self.core.GetPgwNode(), self.server.Get(0))
        plan = ns.Ipv4AddressHelper()
        plan.SetBase(ns.Ipv4Address("1.0.0.0"), ns.Ipv4Mask("255.0.0.0"))
        self.server_address = plan.Assign(ends).GetAddress(1)
        self.station = self.helper.InstallEnbDevice(self.tower)
        self.devices = self.helper.InstallUeDevice(self.vehicles)
        interfaces = self.core.AssignUeIpv4Address(self.devices)
        self.addresses = [interfaces.GetAddress(k) for k in range(self.count)]
        routes = ns.Ipv4StaticRoutingHelper()
        ipv4 = self.server.Get(0).GetObject[ns.Ipv4]()
        routes.GetStaticRouting(ipv4).AddNetworkRouteTo(ns.Ipv4Address("7.0.0.0"), ns.Ipv4Mask("255.0.0.0"), 1)
        for k in range(self.count):
            ipv4 = self.vehicles.Get(k).GetObject[ns.Ipv4]()
            routes.GetStaticRouting(ipv4).SetDefaultRoute(self.core.GetUeDefaultGatewayAddress(), 1)

    def _sockets(self) -> None:
        ns = self.ns
        udp = ns.TypeId.LookupByName("ns3::UdpSocketFactory")
        self.ends: dict[str, list[tuple[Any, Any]]] = {"uplink": [], "downlink": []}
        for k in range(self.count):
            low, high = (ns.Socket.CreateSocket(node, udp) for node in (self.vehicles.Get(k), self.server.Get(0)))
            for end in (low, high):
                end.Bind(ns.InetSocketAddress(ns.Ipv4Address.GetAny(), _PORT + k).ConvertTo())
                self.hooks.Listen(end, k)
            self.ends["uplink"].append((low, ns.InetSocketAddress(self.server_address, _PORT + k).ConvertTo()))
            self.ends["downlink"].append((high, ns.InetSocketAddress(self.addresses[k], _PORT + k).ConvertTo()))

    def lose(self, losses: list[float]) -> None:
        """Set the path loss of every vehicle, dB, both ways."""
        for channel in (self.helper.GetDownlinkSpectrumChannel(), self.helper.GetUplinkSpectrumChannel()):
            for k, loss in enumerate(losses):
                self.hooks.Lose(channel, self.tower.Get(0), self.vehicles.Get(k), loss)

    def run(self, seconds: float) -> None:
        """Simulate so many seconds more."""
        self.ns.Simulator.Stop(self.ns.Seconds(seconds))
        self.ns.Simulator.Run()

    def send(self, way: str) -> list[float | None]:
        """Send one message per vehicle at the same time; return the seconds until each is complete."""
        ns, size, packet = self.ns, self.job["size"], self.job["packet"]
        self.hooks.Reset(self.count)
        began = ns.Simulator.Now().GetSeconds()
        for socket, address in self.ends[way]:
            for start in range(0, size, packet):
                socket.SendTo(ns.Create[ns.Packet](min(packet, size - start)), 0, address)
        while min(self.hooks.bytes) < size and ns.Simulator.Now().GetSeconds() < began + _PATIENCE:
            self.run(_STEP)
        both = zip(self.hooks.bytes, self.hooks.arrived, strict=True)
        return [last - began if got >= size else None for got, last in both]

    def sinr(self, way: str) -> list[float]:
        """Return the last SINR that ns-3 reported per vehicle, dB."""
        heard = self.hooks.up if way == "uplink" else self.hooks.down
        numbers = [self.hooks.Rnti(self.devices.Get(k)) for k in range(self.count)]
        return [10 * math.log10(heard[number]) for number in numbers]


def simulate(job: dict[str, Any]) -> dict[str, Any]:
    """Run all rounds: new losses, some time to settle, all uplinks at once, then all downlinks at once."""
    cell = Cell(importlib.import_module("ns").ns, job)
    rows: dict[str, Any] = {key: [] for key in ("uplink", "downlink", "uplink_sinr", "downlink_sinr")}
    for t, losses in enumerate(job["losses"]):
        cell.lose(losses)
        cell.run(_SETTLE)
        for way in ("uplink", "downlink"):
            rows[way].append(cell.send(way))
            rows[f"{way}_sinr"].append(cell.sinr(way))
        print(f"round {t}", file=sys.stderr, flush=True)
    return rows | {"version": importlib.metadata.version("ns3")}


if __name__ == "__main__":
    answer = simulate(json.load(sys.stdin))
    json.dump(answer, sys.stdout)
    sys.stdout.flush()
