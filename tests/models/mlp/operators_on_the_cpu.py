"""What the operators of networks do, with torch's batched products on the CPU: what the kernels are tested against."""

import torch

from rl_training.models.mlp import activations
from rl_training.models.mlp import eager as mlp_math
from rl_training.models.mlp.layout import MLPLayout
from rl_training.models.mlp.operators import mlp_forward, mlp_gradients, mlp_hidden_gradients


def _parts(first, second, second_width):
    return [first, second] if second_width else [first]


@mlp_forward.register_kernel("cpu")
def forward(columns, rounded, firsts, seconds, second_widths, trained, layouts, precision):
    results = []
    for own, first, second, width, used, layout in zip(
        columns, firsts, seconds, second_widths, trained, MLPLayout.decode(layouts), strict=True
    ):
        inputs = mlp_math.joined_inputs(_parts(first, second, width), layout.ensemble)
        saved, kept = inputs.new_empty(layout.saved_size(*inputs.shape[:2], inputs.itemsize)), []
        outputs = mlp_math.forward(layout, layout.stacks(own), inputs, kept)
        if used:
            for views, values in zip(layout.saved_views(saved, *inputs.shape[:2]), kept, strict=True):
                _fill(views, _as_saved(layout, values))
        results += [outputs.view(own.shape[0], layout.ensemble, *outputs.shape[1:]), saved]
    return results


def _fill(places, values):
    """Copy values to their places."""
    for place, value in zip(places, values, strict=True):
        place.copy_(value)


def _active(layout, argument):
    """The result of the activation, given the argument of its slope."""
    return argument if layout.activation in ("relu", "tanh") else activations.plain(layout.activation, argument)


def _as_saved(layout, kept):
    """What an eager layer keeps for its backward pass, as the operators save it."""
    if layout.norm == "before":
        return kept[:3]
    if layout.norm == "after":
        return [kept[0], kept[3], kept[2], _active(layout, kept[3]).mean(-1, keepdim=True)]
    return kept


def _as_kept(layout, saved, stacks, layer):
    """The same the other way round, to the last bit."""
    if layout.norm == "before" and layout.activation in ("gelu", "silu"):
        scale, offset = stacks[4 * layer + 2 : 4 * layer + 4]
        return [*saved, torch.addcmul(offset, saved[1], scale)]
    if layout.norm == "after":
        active = _active(layout, saved[1])
        norm, _, rstd = torch.native_layer_norm(active, active.shape[-1:], None, None, mlp_math.LAYER_NORM_EPS)
        return [saved[0], norm, rstd, saved[1]]
    return saved


@mlp_hidden_gradients.register_kernel("cpu")
def hidden_gradients(columns, rounded, gradients, saved, wanted, layouts, precision):
    results = []
    for index, layout in enumerate(MLPLayout.decode(layouts)):
        start, count = wanted[2 * index : 2 * index + 2]
        stacks, above = layout.stacks(columns[index]), gradients[index].flatten(0, 1)
        kept = layout.saved_views(saved[index], *above.shape[:2])
        hidden = above.new_zeros(layout.gradient_size(*above.shape[:2]))
        places = layout.gradient_views(hidden, *above.shape[:2])
        for layer in reversed(range(len(kept))):
            own = _as_kept(layout, kept[layer], stacks, layer)
            above, *after_norm = mlp_math.hidden_gradients(layout, own, stacks, layer, above)
            places[layer][0].copy_(above)
            if after_norm:  # the sums are for the launches that make them; here all rows are in the first
                mlp_math._sum_rows(places[layer][1][:, :1], after_norm[0] * own[1], add=False)
                mlp_math._sum_rows(places[layer][2][:, :1], after_norm[0], add=False)
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
        below = [inputs, *(views[0] for views in layout.saved_views(saved[index], *last.shape[:2]))]
        found = [*layout.gradient_views(hidden[index], *last.shape[:2]), [last]]
        places, count = layout.destinations(result), layout.parameters_per_layer
        for layer, (gradient, *sums) in enumerate(found):
            own = places[layer * count : (layer + 1) * count]
            mlp_math.layer_gradients(own[:2], below[layer], [gradient], [])
            for place, values in zip(own[2:], sums, strict=False):
                place.copy_(values.sum(1, keepdim=True).view(place.shape))
        results.append(result)
    return results
