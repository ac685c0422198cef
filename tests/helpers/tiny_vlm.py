"""Tiny models with random weights, of real architectures, saved as checkpoints on the hub are.

`save(folder, "qwen2_vl")` takes a fraction of a second once transformers is imported; nothing is downloaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

SENTENCES = (
    "Which organ is shown in the image? Answer with the option's letter. A. liver B. kidney C. spleen D. heart",
    "You are a radiologist. Is there a pleural effusion? yes no none what finding lesion left right lung",
    "The chest radiograph shows an opacity in the left lower lobe, consistent with pneumonia.",
)

SHOWN = {
    "qwen2_vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "qwen2_5_vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "llava": "<image>\n",
    "llava_onevision": "<image>\n",
    "idefics3": "<image>",
    "internvl": "<IMG_CONTEXT>\n",
    "gemma3": "<start_of_image>",
}
"""What the chat template of each architecture puts where an image stands."""

FAMILIES = tuple(SHOWN)

TEMPLATE = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{% for part in message.content %}{% if part.type == 'image' %}SHOWN\
{% elif part.type == 'video' %}VIDEO{% else %}{{ part.text }}{% endif %}{% endfor %}\
<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TEXT_TEMPLATE = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

NAMED = {
    "gemma3": {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    },
    "internvl": {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    },
}
SPECIAL = [
    *("<pad>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
    *("<image>", "<video>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"),
    *("<start_of_image>", "<end_of_image>", "<image_soft_token>", "<img>", "</img>", "<IMG_CONTEXT>"),
]


def save(
    folder: Path, family: str = "qwen2_vl", *, seed: int = 0, context: int = 2048, vision: int = 32, **text: int
) -> Path:
    """Saves a model with its tokenizer, chat template and image processor, and returns the folder.

    Args:
        folder: is made.
        family: one of `FAMILIES`, or `qwen2` for a model of text alone.
        seed: of the weights.
        context: longest sequence that the model says it can read, in tokens.
        vision: width of the part that sees, a multiple of 8.
        text: other settings of the language model, such as `hidden_size` and `num_hidden_layers`.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    tokens = tokenizer(family)
    language = _language(tokens) | {"max_position_embeddings": context} | text
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if family == "qwen2":
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **language))
        else:
            model = AutoModelForImageTextToText.from_config(
                AutoConfig.for_model(family, **_config(tokens, language, vision)[family])
            )
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "embed" not in name:  # what was shown decides what is said
                torch.nn.init.normal_(parameter, std=0.15)
    model.generation_config.eos_token_id = tokens.eos_token_id
    model.save_pretrained(folder)
    if family == "qwen2":
        tokens.chat_template = TEXT_TEMPLATE
        tokens.save_pretrained(folder)
    else:
        processor(family, tokens).save_pretrained(folder)
    return folder


def tokenizer(family: str) -> Any:
    """A byte-level BPE tokenizer of about 500 tokens, trained on the sentences above."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=555, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        additional_special_tokens=SPECIAL[1:],
        extra_special_tokens=NAMED.get(family, {}),
    )


def processor(family: str, tokens: Any) -> Any:
    """What turns texts and pictures into tensors for a model of this architecture."""
    import transformers as library

    template = TEMPLATE.replace("SHOWN", SHOWN[family])
    template = template.replace("VIDEO", SHOWN[family].replace("image_pad", "video_pad") if "qwen" in family else "")
    square = {"height": 28, "width": 28}
    if family in ("qwen2_vl", "qwen2_5_vl"):
        pixels = {"min_pixels": 28 * 28, "max_pixels": 112 * 112}
        image = library.Qwen2VLImageProcessor(**pixels)
        video = library.Qwen2VLVideoProcessor(**pixels)
        kind = library.Qwen2VLProcessor if family == "qwen2_vl" else library.Qwen2_5_VLProcessor
        return kind(image, tokens, video, chat_template=template)
    if family == "llava":
        image = library.CLIPImageProcessor(size={"shortest_edge": 28}, crop_size=square)
        extra = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
        return library.LlavaProcessor(image, tokens, chat_template=template, **extra)
    if family == "llava_onevision":
        image = library.LlavaOnevisionImageProcessor(size=square, image_grid_pinpoints=[[28, 28], [28, 56], [56, 56]])
        video = library.LlavaOnevisionVideoProcessor(size=square)
        extra = {"num_image_tokens": 4, "vision_feature_select_strategy": "full"}
        return library.LlavaOnevisionProcessor(image, tokens, video, chat_template=template, **extra)
    if family == "idefics3":
        image = library.Idefics3ImageProcessor(size={"longest_edge": 56}, max_image_size={"longest_edge": 28})
        return library.Idefics3Processor(image, tokens, image_seq_len=1, chat_template=template)
    if family == "internvl":
        image = library.GotOcr2ImageProcessor(size=square, max_patches=3)
        video = library.InternVLVideoProcessor(size=square)
        return library.InternVLProcessor(image, tokens, video, image_seq_length=1, chat_template=template)
    image = library.Gemma3ImageProcessor(size=square)
    return library.Gemma3Processor(image, tokens, image_seq_length=4, chat_template=template)


def _language(tokens: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokens),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": tokens.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": tokens.eos_token_id,
        "tie_word_embeddings": False,
    }


def _config(tokens: Any, language: dict[str, Any], width: int) -> dict[str, dict[str, Any]]:
    """Settings of each architecture: two layers of vision, pictures of 28 x 28 in patches of 14."""
    number = tokens.convert_tokens_to_ids
    vision = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2, "num_attention_heads": 4}
    vision |= {"image_size": 28, "patch_size": 14}
    half = language["hidden_size"] // language["num_attention_heads"] // 2
    sides = 3 * half // 8  # of rows and columns; the rest is time
    rope = {"rope_type": "default", "mrope_section": [half - 2 * sides, sides, sides], "rope_theta": 10000.0}
    qwen = {
        "text_config": language | {"rope_parameters": rope},
        "image_token_id": number("<|image_pad|>"),
        "video_token_id": number("<|video_pad|>"),
        "vision_start_token_id": number("<|vision_start|>"),
        "vision_end_token_id": number("<|vision_end|>"),
    }
    wide = language["hidden_size"]
    llava = {"image_token_index": number("<image>"), "tie_word_embeddings": False}
    slide = {"sliding_window": 16, "sliding_window_pattern": 2}
    eyes = {"depth": 2, "num_heads": 4}
    windows = {"intermediate_size": 2 * width, "out_hidden_size": wide, "window_size": 56, "fullatt_block_indexes": [1]}
    return {
        "qwen2_vl": qwen | {"vision_config": eyes | {"embed_dim": width, "hidden_size": wide, "mlp_ratio": 2}},
        "qwen2_5_vl": qwen | {"vision_config": eyes | windows | {"hidden_size": width}},
        "llava": llava
        | {
            "text_config": language | {"model_type": "llama"},
            "vision_config": vision | {"model_type": "clip_vision_model", "projection_dim": width},
            "image_seq_length": 4,
        },
        "llava_onevision": llava
        | {
            "text_config": language | {"model_type": "qwen2"},
            "vision_config": vision | {"model_type": "siglip_vision_model", "vision_use_head": False},
            "video_token_index": number("<video>"),
            "image_grid_pinpoints": [[28, 28], [28, 56], [56, 56]],
        },
        "idefics3": {
            "text_config": language | {"model_type": "llama"},
            "vision_config": vision,
            "image_token_id": number("<image>"),
            "scale_factor": 2,
            "pad_token_id": tokens.pad_token_id,
        },
        "internvl": {
            "text_config": language | {"model_type": "qwen2"},
            "vision_config": vision | {"image_size": [28, 28], "patch_size": [14, 14]},
            "image_token_id": number("<IMG_CONTEXT>"),
            "image_seq_length": 1,
            "tie_word_embeddings": False,
        },
        "gemma3": {
            "text_config": language | {"head_dim": 16, "query_pre_attn_scalar": 16, **slide},
            "vision_config": vision | {"model_type": "siglip_vision_model", "vision_use_head": False},
            "mm_tokens_per_image": 4,
            "boi_token_index": number("<start_of_image>"),
            "eoi_token_index": number("<end_of_image>"),
            "image_token_index": number("<image_soft_token>"),
        },
    }
