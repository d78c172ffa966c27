"""RMSNorm by PyTorch's own function, in place of the six operations that most families of transformers write out: one kernel on a GPU."""

import copy
from collections.abc import Iterator
from functools import partial

import torch
from torch import nn
from torch.nn.functional import rms_norm

_SCALES = 32  # of the probe's rows, so that a different epsilon shows too


def fuse_norms(model: nn.Module) -> list[nn.Module]:
    """Let every norm of the model that computes the same compute by `rms_norm`; returns those for `unfuse_norms`.

    In float32, results are equal. In 16 bits they are rounded once instead of twice.
    """
    equal: dict[tuple[type[nn.Module], float], bool] = {}
    fused: list[nn.Module] = []
    for module, eps in _candidates(model):
        kind = type(module), eps
        if kind not in equal:
            equal[kind] = _computes_rms_norm(module, eps)
        if equal[kind]:
            module.forward = partial(_forward, module, eps)
            fused.append(module)
    return fused


def unfuse_norms(fused: list[nn.Module]) -> None:
    """Give norms their own forward pass back."""
    for module in fused:
        del module.forward


def _candidates(model: nn.Module) -> Iterator[tuple[nn.Module, float]]:
    """Norms over a weight that lies whole on this device (ZeRO-3 leaves it empty), and whose forward pass nobody replaced, by epsilon."""
    for module in model.modules():
        weight, eps = getattr(module, "weight", None), getattr(module, "variance_epsilon", getattr(module, "eps", None))
        named = type(module).__name__.endswith("RMSNorm") and "forward" not in vars(module)
        if named and isinstance(eps, float) and isinstance(weight, torch.Tensor) and weight.dim() == 1 and weight.numel():
            yield module, eps


def _forward(module: nn.Module, eps: float, hidden: torch.Tensor) -> torch.Tensor:
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    return rms_norm(hidden, weight.shape, weight, eps)


@torch.no_grad()
def _computes_rms_norm(module: nn.Module, eps: float) -> bool:
    """Whether a norm's result is `rms_norm`'s, for any weight. Some families add one to it (Gemma), or normalize groups."""
    probed = copy.deepcopy(module).float().cpu()
    numbers = torch.Generator().manual_seed(0)
    weight = probed.weight
    assert isinstance(weight, torch.Tensor)
    weight.copy_(torch.rand(weight.shape, generator=numbers) + 0.5)
    rows = torch.randn((_SCALES, *weight.shape), generator=numbers) * torch.logspace(-4, 2, _SCALES)[:, None]
    try:
        found = probed(rows)
    except (RuntimeError, TypeError, ValueError):  # it takes other arguments, such as a gate
        return False
    return isinstance(found, torch.Tensor) and torch.allclose(found, rms_norm(rows, weight.shape, weight, eps), rtol=1e-5, atol=1e-6)
