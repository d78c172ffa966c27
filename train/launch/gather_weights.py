"""The weights of a model that ZeRO-3 or FSDP2 has split over processes, whole again in the first process's host memory."""

from typing import Any


def whole_weights(trainer: Any) -> dict[str, Any] | None:
    """Weights by name: all of a model, or those that are trained of an adapter; None where every process holds the model whole.

    Every process must call it. Gathers one parameter at a time, so no device ever holds more than its share and one whole parameter.
    """
    from torch.distributed.tensor import DTensor

    model = trainer.accelerator.unwrap_model(trainer.model)
    split = [parameter for parameter in model.parameters() if hasattr(parameter, "ds_id") or isinstance(parameter, DTensor)]
    if not split:
        return None
    wanted = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    # FSDP's own recomputation wraps layers, and their names with them.
    return {name.replace("_checkpoint_wrapped_module.", ""): _whole(parameter) for name, parameter in wanted}


def _whole(parameter: Any) -> Any:
    from torch.distributed.tensor import DTensor

    if isinstance(parameter, DTensor):
        return parameter.full_tensor().detach().cpu()
    if not hasattr(parameter, "ds_id"):
        return parameter.detach().cpu()
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter]):
        return parameter.detach().cpu().clone()
