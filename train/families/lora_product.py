"""A linear layer with its LoRA adapter as one autograd function.

PEFT's forward pass multiplies by W, A and B, scales, and adds; autograd then adds the two gradients of the input. Each of these reads and
writes all activations once more. Here the products add to what is there already (`addmm`), in both directions, and everything is computed
in W's dtype, whether autocast is on or not.
"""

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from peft.tuners.lora import Linear


class LoraProduct(torch.autograd.Function):
    """x W^T + bias + scale (read A^T) B^T of `x` (..., in), where `read` is x after the adapter's dropout, or None without one."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, read: Tensor | None, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        """Returns (..., out), in W's dtype."""
        dtype = weight.dtype
        rows = x.reshape(-1, x.shape[-1]).to(dtype)
        read_rows = rows if read is None else read.reshape(rows.shape).to(dtype)
        a, b = a.to(dtype), b.to(dtype)
        low = (read_rows @ a.t()).mul_(scale)  # (rows, rank)
        out = rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())
        ctx.save_for_backward(read_rows, low, weight, a, b)
        ctx.scale, ctx.has_dropout = scale, read is not None
        return out.addmm_(low, b.t()).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, of what the adapter read, of A and of B; autograd casts them to the dtype of each."""
        read_rows, low, weight, a, b = ctx.saved_tensors
        shape = gradients[0].shape[:-1]
        out = gradients[0].reshape(-1, gradients[0].shape[-1])
        out_low = (out @ b).mul_(ctx.scale)  # (rows, rank)
        x = read = None
        if ctx.needs_input_grad[0]:
            x = out @ weight
            x = (x if ctx.has_dropout else x.addmm_(out_low, a)).view(*shape, -1)
        if ctx.has_dropout and ctx.needs_input_grad[1]:
            read = (out_low @ a).view(*shape, -1)
        return x, read, None, None, out_low.t() @ read_rows, out.t() @ low, None


def can_be_one_product(layer: nn.Module) -> bool:
    """Whether PEFT's layer is plain LoRA on a frozen linear layer: not 4-bit, not DoRA or aLoRA, without a bias of B."""
    from peft.tuners.lora import Linear

    if type(layer) is not Linear or type(layer.get_base_layer()) is not nn.Linear:
        return False
    frozen = not any(parameter.requires_grad for parameter in layer.get_base_layer().parameters())
    return frozen and not layer.lora_variant and not any(layer.lora_bias.values()) and not layer.fan_in_fan_out


def lora_forward(layer: "Linear", x: Tensor, *arguments: Any, **options: Any) -> Tensor:
    """PEFT's forward pass of such a layer. With the adapter off, merged, or one of several, it is PEFT's own."""
    names = layer.active_adapters
    if arguments or options or layer.disable_adapters or layer.merged or len(names) != 1 or names[0] not in layer.lora_A:
        return cast(Tensor, type(layer).forward(layer, x, *arguments, **options))
    (name,), base = names, cast(nn.Linear, layer.get_base_layer())
    read = layer.lora_dropout[name](x)
    a, b = (cast(Tensor, side[name].weight) for side in (layer.lora_A, layer.lora_B))
    product = LoraProduct.apply(x, None if read is x else read, base.weight, base.bias, a, b, layer.scaling[name])
    return cast(Tensor, product)
