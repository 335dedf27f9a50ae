"""What the operators of networks do, with torch's batched products on the CPU: what the kernels are tested against."""

import torch

from rl_training.models.mlp import eager as mlp_math
from rl_training.models.mlp.eager import MLPLayout
from rl_training.models.mlp.operators import mlp_forward, mlp_gradients, mlp_hidden_gradients


def _parts(first, second, second_width):
    return [first, second] if second_width else [first]


@mlp_forward.register_kernel("cpu")
def forward(columns, firsts, seconds, second_widths, trained, layouts, precision):
    results = []
    for own, first, second, width, used, layout in zip(
        columns, firsts, seconds, second_widths, trained, MLPLayout.decode(layouts), strict=True
    ):
        inputs = mlp_math.joined_inputs(_parts(first, second, width), layout.ensemble)
        saved, kept = inputs.new_empty(layout.saved_size(*inputs.shape[:2])), []
        views = layout.saved_views(saved, *inputs.shape[:2]) if used else []
        outputs = mlp_math.forward(layout, layout.stacks(own), inputs, kept)
        _fill(views, kept)
        results += [outputs.view(own.shape[0], layout.ensemble, *outputs.shape[1:]), saved]
    return results


def _fill(places, values):
    """Copy values to their places."""
    for own, made in zip(places, values, strict=False):
        for place, value in zip(own, made, strict=False):
            place.copy_(value)


@mlp_hidden_gradients.register_kernel("cpu")
def hidden_gradients(columns, gradients, saved, wanted, layouts, precision):
    results = []
    for index, layout in enumerate(MLPLayout.decode(layouts)):
        start, count = wanted[2 * index : 2 * index + 2]
        stacks, above = layout.stacks(columns[index]), gradients[index].flatten(0, 1)
        kept = layout.saved_views(saved[index], *above.shape[:2])
        hidden = torch.empty_like(saved[index])
        places = layout.saved_views(hidden, *above.shape[:2])
        for layer in reversed(range(len(kept))):
            found = mlp_math.hidden_gradients(layout, kept[layer], stacks, layer, above)
            _fill([places[layer]], [found])
            above = found[0]
        inputs = above.new_empty(*above.shape[:2], 0)
        if count:
            inputs = mlp_math.product(above, stacks[0][:, start : start + count].transpose(1, 2))
        results += [hidden, inputs.view(*gradients[index].shape[:3], count)]
    return results


@mlp_gradients.register_kernel("cpu")
def parameter_gradients(firsts, seconds, second_widths, gradients, saved, hidden, layouts, precision):
    results = []
    for index, layout in enumerate(MLPLayout.decode(layouts)):
        result = layout.new_columns(gradients[index].shape[0], gradients[index])
        inputs = mlp_math.joined_inputs(_parts(firsts[index], seconds[index], second_widths[index]), layout.ensemble)
        last = gradients[index].flatten(0, 1)
        kept = [[inputs], *layout.saved_views(saved[index], *last.shape[:2])]
        found = [*layout.saved_views(hidden[index], *last.shape[:2]), [last]]
        places, count = layout.destinations(result), layout.parameters_per_layer
        for layer, own_gradients in enumerate(found):
            own = places[layer * count : (layer + 1) * count]
            mlp_math.layer_gradients(own, kept[layer][0], own_gradients, kept[layer + 1] if layer + 1 < len(kept) else [])
        results.append(result)
    return results
