"""A vehicle's round of 2CEOAFL as a good student writes it in plain PyTorch: what the engine is measured against."""

import copy

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

_LEVELS = 3  # s of QSGD


def student_round(
    model: nn.Module, data: TensorDataset, rho: int, kappa: int, delta: float, rate: float
) -> list[Tensor]:
    """Deep copy, DataLoader, SGD, per-layer top-k masks on gradients, QSGD per tensor; returns what is uploaded."""
    dense = copy.deepcopy(model)
    _train(dense, data, rho, rate)
    masks = []
    for parameter in dense.parameters():
        size = parameter.detach().abs().flatten()
        kept = torch.topk(size, max(1, round((1 - delta) * size.numel()))).indices
        masks.append(torch.zeros_like(size).index_fill_(0, kept, 1).view_as(parameter))
    ticket = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, mask in zip(ticket.parameters(), masks, strict=True):
            parameter.mul_(mask)
    start = [parameter.detach().clone() for parameter in ticket.parameters()]
    _train(ticket, data, kappa, rate, masks)
    return [_qsgd((a - b.detach()) / rate) for a, b in zip(start, ticket.parameters(), strict=True)]


def _train(model: nn.Module, data: TensorDataset, steps: int, rate: float, masks: list[Tensor] | None = None) -> None:
    model.train()
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    loader = iter(DataLoader(data, batch_size=64, shuffle=True, drop_last=True))
    for _ in range(steps):
        images, labels = next(loader)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        if masks is not None:
            for parameter, mask in zip(model.parameters(), masks, strict=True):
                assert parameter.grad is not None
                parameter.grad.mul_(mask)
        optimiser.step()


def _qsgd(values: Tensor) -> Tensor:
    norm = values.norm()
    if norm == 0:
        return values
    place = values.abs() / norm * _LEVELS
    lower = place.floor()
    levels: Tensor = lower + (torch.rand_like(values) < place - lower)
    quantised: Tensor = norm * values.sign() * levels / _LEVELS
    return quantised
