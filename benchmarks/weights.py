"""Seeded weights with the statistics of trained ones, which reveal faults that a fresh network hides (needs torch).

A fresh BatchNorm is the identity, a fresh bias is zero, a fresh layer scale is 1e-6: a rewrite that loses any of them
would still give the right numbers. So constants are replaced with random values, linear layers get weights that
preserve the signal, and the running statistics of every BatchNorm are measured on random input and then perturbed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks.zoo import Entry, Input


def make_inputs(inputs: tuple[Input, ...], batch: int = 1, seed: int = 0) -> tuple[Tensor, ...]:
    """Example inputs for a network, the same for the same seed."""
    torch.manual_seed(seed)
    made = []
    for spec in inputs:
        shape = (batch, *spec.shape[1:])
        if spec.kind == "ids":
            made.append(torch.randint(0, spec.bound, shape))
        elif spec.kind == "mask":
            mask = torch.ones(shape, dtype=torch.int64)
            mask[-1, -shape[1] // 4 :] = 0
            made.append(mask)
        else:
            made.append(torch.randn(shape))
    return tuple(made)


def season(net: nn.Module, entry: Entry, seed: int = 0) -> nn.Module:
    """Give `net` weights that look trained, and put it into evaluation mode."""
    torch.manual_seed(seed + 1)
    net.eval().requires_grad_(requires_grad=False)
    seen: set[int] = set()
    for module in net.modules():
        for name, weight in module.named_parameters(recurse=False):
            if id(weight) not in seen:  # tied weights are drawn once
                seen.add(id(weight))
                _draw(module, name, weight)
    _calibrate(net, entry, seed)
    return net


def _draw(module: nn.Module, name: str, weight: Tensor) -> None:
    if weight.numel() == 0:
        return
    low, high = float(weight.min()), float(weight.max())
    if low == high and abs(low) == 1.0:
        weight.uniform_(0.7, 1.3).mul_(low)
    elif low == high == 0.0:
        weight.uniform_(0.7, 1.3) if isinstance(module, _BatchNorm) and name == "weight" else weight.normal_(0, 0.05)
    elif low == high:
        weight.uniform_(0.5 * abs(low), 1.5 * abs(low)) if abs(low) > 0.01 else weight.uniform_(0.1, 0.5)
    elif isinstance(module, nn.Linear) and name == "weight":
        weight.normal_(0, weight.shape[1] ** -0.5)
    elif type(module).__name__ == "Conv1D" and name == "weight":  # GPT-2 keeps its matrices transposed
        weight.normal_(0, weight.shape[0] ** -0.5)


def _calibrate(net: nn.Module, entry: Entry, seed: int) -> None:
    norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.weight.uniform_(0.7, 1.3)
        norm.bias.normal_(0, 0.2)
        norm.momentum = 1.0  # one pass replaces the running statistics
        norm.train()
    net(*make_inputs(entry.inputs, batch=8, seed=seed + 2))
    torch.manual_seed(seed + 3)
    for norm in norms:
        norm.eval()
        norm.momentum = 0.1
        mean, var = norm.running_mean, norm.running_var
        assert mean is not None
        assert var is not None
        if isinstance(norm, nn.BatchNorm1d):  # pooled noise varies so little that normalization would amplify it
            var.add_(0.1 * mean.square())
        var.clamp_(min=1e-3).mul_(torch.empty_like(var).uniform_(0.8, 1.25))
        mean.add_(torch.randn_like(mean) * 0.1 * var.sqrt())
