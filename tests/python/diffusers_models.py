"""Tiny transformers of diffusers with random weights, and inputs for them."""

import diffusers
import torch

SEED = 20260802


def _seeded(make):
    torch.manual_seed(SEED)
    model = make().eval()
    # Some parameters start at zero or one, which would hide what attention does.
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    return model


def wan(image=False, layers=2):
    """Heads of 12, cross-attention to 512 text tokens and, with `image`, to image tokens."""
    more = {"image_dim": 8, "added_kv_proj_dim": 24} if image else {}
    return _seeded(
        lambda: diffusers.WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=12,
            in_channels=4,
            out_channels=4,
            text_dim=16,
            freq_dim=32,
            ffn_dim=32,
            num_layers=layers,
            cross_attn_norm=True,
            qk_norm="rms_norm_across_heads",
            rope_max_seq_len=32,
            **more,
        )
    )


def wan_inputs(image=False, per_token=False, frames=3, text=512):
    """Latents [2,4,frames,8,10], so frames*20 tokens; a timestep for each item, or for each of its tokens."""
    generator = torch.Generator().manual_seed(SEED)
    made = {
        "hidden_states": torch.randn(2, 4, frames, 8, 10, generator=generator),
        "timestep": torch.tensor([3.0, 700.0]),
        "encoder_hidden_states": torch.randn(2, text, 16, generator=generator),
    }
    if per_token:
        tokens = frames * 20
        made["timestep"] = torch.where(torch.arange(tokens) < 20, 0.0, 700.0).expand(2, tokens).contiguous()
    if image:
        made["encoder_hidden_states_image"] = torch.randn(2, 9, 8, generator=generator)
    return made


def qwen(layers=2):
    return _seeded(
        lambda: diffusers.QwenImageTransformer2DModel(
            patch_size=2,
            in_channels=16,
            out_channels=4,
            num_layers=layers,
            attention_head_dim=16,
            num_attention_heads=3,
            joint_attention_dim=16,
            axes_dims_rope=(8, 4, 4),
        )
    )


def qwen_inputs(lengths=(7, 4)):
    """20 image tokens for each item; texts of different lengths, padded with large numbers."""
    generator = torch.Generator().manual_seed(SEED)
    longest = max(lengths)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    text = torch.randn(2, longest, 16, generator=generator)
    return {
        "hidden_states": torch.randn(2, 20, 16, generator=generator),
        "encoder_hidden_states": torch.where(mask[..., None], text, 100.0 * text),
        "encoder_hidden_states_mask": None if all(n == longest for n in lengths) else mask,
        "timestep": torch.tensor([0.1, 0.8]),
        "img_shapes": [[(1, 4, 5)]] * 2,
    }


def zimage(layers=2):
    return _seeded(
        lambda: diffusers.ZImageTransformer2DModel(
            in_channels=4,
            dim=32,
            n_layers=layers,
            n_refiner_layers=1,
            n_heads=2,
            n_kv_heads=2,
            cap_feat_dim=16,
            axes_dims=[8, 4, 4],
            axes_lens=[256, 64, 64],
        )
    )


def zimage_inputs(sizes=((16, 12), (8, 8)), lengths=(40, 5)):
    """Images and captions as lists; items of different length need a mask."""
    generator = torch.Generator().manual_seed(SEED)
    return {
        "x": [torch.randn(4, 1, height, width, generator=generator) for height, width in sizes],
        "t": torch.tensor([0.2, 0.9]),
        "cap_feats": [torch.randn(length, 16, generator=generator) for length in lengths],
    }


def to(value, device, dtype):
    """Tensors, or lists of them, on the device and floating ones in the dtype; anything else as it is."""
    if isinstance(value, list):
        return [to(each, device, dtype) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device, dtype) if value.is_floating_point() else value.to(device)


def outputs(model, arguments):
    """The model's output as one flat tensor."""
    with torch.no_grad():
        made = model(**arguments, return_dict=False)[0]
    return torch.cat([part.flatten() for part in made]) if isinstance(made, list) else made.flatten()
