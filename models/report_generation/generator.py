"""A generator of reports that `fit` trains: an image encoder of timm or open_clip, a decoder of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from medimg_eval.case import Case, Image, Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError, import_optional
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.models.base import Example, Pass, VisionLanguageModel, shown_images
from medimg_eval.models.baselines import reports_of, texts_of
from medimg_eval.models.networks import HUB, build_timm, kept_beside, load_weights
from medimg_eval.models.report_generation.tokenizer import Phrases, Pieces, Words, packed, unpacked
from medimg_eval.models.vision_language import GumbelSampler, OpenClip, truncate_at_stop
from medimg_eval.question import Decoding, Key

OF_PHRASES = 4.0
"""Weight of the loss of phrases: a mean over many that are mostly absent is small."""

OPEN_CLIP = "open_clip:"
"""What stands before the name of a model of open_clip, or before the folder of one."""


class ReportGenerator(nn.Module, VisionLanguageModel):
    """Report generator from pictures, trained by `fit` on their reports.

    The encoder makes a grid of features of each picture, and the decoder writes word by word and attends to all grids
    (cross attention). The mean and the largest features also say how likely each of some hundred phrases is in the
    report, which the decoder attends to as well: from a few hundred studies it would otherwise learn to write long
    before it learns to look. The loss is the cross entropy of the next word, and that of the phrases. Of several right
    reports each visit takes one.

    Args:
        encoder: timm's name, such as `resnet18`; `hf-hub:OWNER/NAME` for a model of timm on the Hugging Face hub with
            its weights; `open_clip:` and open_clip's name, or a folder that holds `open_clip_config.json`.
        encoder_weights: file of weights for the encoder, before training; of open_clip also its tag.
        encoder_options: further arguments of `timm.create_model`, which make a network smaller or larger.
        freeze: leaves the encoder as it is; only what reads its features learns, a probe of reports.
        decoder: a model of transformers, made anew: `model_type`, such as `gpt2`, and settings of its configuration; or
            a pretrained one with its tokenizer, as a folder or OWNER/NAME on the hub.
        checkpoint: weights for the whole: the folder of a `fit` run, or one of its checkpoints.
        image_size: edge in pixels that pictures are scaled to, on a square of black; null is the encoder's own.
        views: pictures of a study that are read, the first ones.
        max_tokens: words of a report that are learned and written; what is longer is cut off.
        threshold: words that occur less often in the reports to fit on are unknown, and never written. A pretrained
            decoder brings its own.
        phrases: how many phrases are foretold; 0 for none.
        beams: width of the beam search; 1 is greedy. Where `task.decoding.temperature` is above 0, words are drawn.
        augment: part of the edges by which training pictures are cropped at most, and by which their contrast varies;
            they are not mirrored, for a report says left and right.
        batch: reports written at once.

    Raises:
        UsageError: invalid settings; `prepare` and `study` raise UserError where a library is missing or
            a model cannot be loaded.
    """

    preferred_batch = 32
    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint", "encoder_weights")
    pace_arguments: ClassVar[tuple[str, ...]] = ("batch",)

    def __init__(
        self,
        *,
        encoder: str = "resnet18",
        encoder_weights: str | None = None,
        encoder_options: Mapping[str, Any] | None = None,
        freeze: bool = False,
        decoder: str | Mapping[str, Any] = "gpt2",
        checkpoint: str | None = None,
        image_size: int | None = None,
        views: int = 1,
        max_tokens: int = 128,
        threshold: int = 3,
        phrases: int = 256,
        beams: int = 1,
        augment: float = 0.06,
        batch: int = 32,
    ) -> None:
        super().__init__()
        for name, value in {"views": views, "threshold": threshold, "beams": beams, "batch": batch}.items():
            if value < 1:
                raise UsageError(f"model.{name} is {value}, expected at least 1")
        if max_tokens < 3 or phrases < 0 or not 0 <= augment < 0.5:
            raise UsageError(
                f"model.max_tokens={max_tokens}, phrases={phrases}, augment={augment}: expected at least 3 words, no "
                "negative number of phrases, and a part from 0 to below 0.5"
            )
        if not isinstance(decoder, str) and "model_type" not in decoder:
            raise UsageError("model.decoder: expected `model_type` among its settings, such as gpt2")
        self.encoder_name, self.encoder_weights = encoder, encoder_weights
        self.encoder_options, self.freeze = dict(encoder_options or {}), freeze
        self.decoder_wanted = decoder if isinstance(decoder, str) else dict(decoder)
        self.checkpoint = checkpoint
        self.image_size, self.views, self.max_tokens, self.threshold = image_size, views, max_tokens, threshold
        self.number_of_phrases, self.beams, self.augment, self.batch = phrases, beams, augment, batch
        self.encoder: Any = None
        self.decoder: Any = None
        self.words: Any = None
        self.phrases = Phrases(())
        self.register_buffer("packed", torch.zeros(0, dtype=torch.uint8))

    def check_ready(self) -> None:
        """Refuses a generator whose weights are random."""
        if self.checkpoint is None:
            raise UserError("this generator has no weights; set model.checkpoint=PATH, or train it first with `fit`")

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Where there are weights, loads them and the words they were learned with."""
        if self.checkpoint is None or self.decoder is not None:
            return
        path = Path(self.checkpoint).expanduser()
        packed_words = kept_beside(path, "packed")
        if packed_words is None:
            raise UserError(
                f"{path}: holds no words of a report generator; set model.checkpoint to a run that fitted one"
            )
        self._make(*unpacked(packed_words))
        load_weights(self, path)

    def train(self, mode: bool = True) -> Self:
        """Sets training mode of learned parts; frozen encoders keep their statistics."""
        super().train(mode)
        if self.freeze and self.encoder is not None:
            self.encoder.eval()
        return self

    @property
    def studied(self) -> bool:
        """Whether it has its words, such as those of a checkpoint."""
        return self.decoder is not None

    def study(self, cases: Sequence[Case]) -> None:
        """Learns vocabulary and phrases of fit reports, unless a checkpoint has them."""
        if self.studied:
            return
        texts = [text for case in cases for text in reports_of(case)]
        learned = () if isinstance(self.decoder_wanted, str) else Words.learned(texts, self.threshold).known
        self._make(learned, Phrases.learned(texts, self.number_of_phrases).known)

    def one_pass(self) -> Pass | None:
        """The encoding of one picture."""
        if self.encoder is None:
            return None
        return Pass(self.encoder, (1, 3, self.encoder.edge, self.encoder.edge))

    def training_samples(
        self, prompt: Prompt, target: Key, labels: Mapping[int, str], *, seed: int
    ) -> list[dict[str, Tensor]]:
        """One report and its pictures.

        Returns:
            `pictures` (view, 3, row, column) float32; `seen` (view,) bool; `words` (max_tokens,) int64, of which the
            first `length` count; `phrases` (phrase,) float32, 1 for those that the report has.

        Raises:
            CaseError: there is no report, or an image is no picture.
        """
        self._refuse_unmade()
        texts = texts_of(target)
        if not texts:
            raise CaseError(f"case {prompt.case_id!r} has no report to learn from; leave it out of the split to fit on")
        rng = np.random.default_rng(seed)
        pictures, has_view = self._stack(prompt, rng)
        text = texts[int(rng.integers(len(texts)))]
        numbers = self.words.encode(text, self.max_tokens)
        padded = numbers + [self.words.pad] * (self.max_tokens - len(numbers))
        return [
            {
                "pictures": pictures,
                "seen": has_view,
                "words": torch.tensor(padded),
                "length": torch.tensor(len(numbers)),
                "phrases": self.phrases.told(text),
            }
        ]

    def training_loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Mean cross entropy of known next words and of phrases."""
        longest = int(batch["length"].max())
        numbers = batch["words"][:, :longest]
        past = torch.arange(longest, device=numbers.device)[None] >= batch["length"][:, None]
        unwritten = torch.tensor(self.words.unwritten, dtype=torch.long, device=numbers.device)
        targets = numbers.masked_fill(past | torch.isin(numbers, unwritten), -100)
        memory, mask, likely = self._memory(batch["pictures"], batch["seen"])
        logits = self.decoder(
            input_ids=numbers,
            attention_mask=(~past).long(),
            encoder_hidden_states=memory,
            encoder_attention_mask=mask,
            use_cache=False,
        ).logits
        loss: Tensor = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets[:, 1:].flatten())
        if likely is not None:
            loss = loss + OF_PHRASES * nn.functional.binary_cross_entropy_with_logits(likely, batch["phrases"])
        return loss

    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """Writes a report per prompt, without pictures the likeliest; CaseError for no picture."""
        self._refuse_unmade()
        return [
            text
            for begin in range(0, len(prompts), self.batch)
            for text in self._written(prompts[begin : begin + self.batch], decoding)
        ]

    @torch.inference_mode()
    def _written(self, prompts: Prompts, decoding: Decoding) -> list[str]:
        from transformers import GenerationConfig, LogitsProcessorList

        device = self.places.device
        stacked = [self._stack(prompt) for prompt in prompts]
        pictures, has_view = (torch.stack(list(some)).to(device) for some in zip(*stacked, strict=True))
        memory, mask, _ = self._memory(pictures, has_view)
        written = self.words
        drawing = decoding.temperature > 0
        settings = GenerationConfig(
            max_new_tokens=min(decoding.max_new_tokens, self.max_tokens - 1),
            num_beams=1 if drawing else self.beams,
            do_sample=False,  # draws are made row by row, below
            bos_token_id=written.begin,
            eos_token_id=written.end,
            pad_token_id=written.pad,
            suppress_tokens=list(written.unwritten) or None,
        )
        begin = torch.full((len(prompts), 1), written.begin, device=device)
        numbers = self.decoder.generate(
            input_ids=begin,
            attention_mask=torch.ones_like(begin),
            encoder_hidden_states=memory,
            encoder_attention_mask=mask,
            generation_config=settings,
            logits_processor=LogitsProcessorList([GumbelSampler(decoding, prompts)] if drawing else []),
        )
        return [truncate_at_stop(written.decode(row), decoding.stop) for row in numbers[:, 1:].tolist()]

    def _refuse_unmade(self) -> None:
        if self.decoder is None:
            raise UserError("this generator has learned no words yet; call prepare() with a checkpoint, or study()")

    def _memory(self, pictures: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns what the decoder attends to, and how likely phrases are.

        It returns (report, place, feature) float; which places count, int64, (report, place); and the logit of each
        phrase, (report, phrase), None without phrases. Pictures are float32, (report, view, 3, row, column), `seen`
        (report, view).
        """
        count, views = seen.shape
        grids = self.places.new_zeros(count, views, *self.places.shape)
        if bool(seen.any()):
            grids[seen] = (self.join(self.encoder(pictures[seen])) + self.places).to(grids.dtype)
        flat_grids = grids.flatten(1, 2)
        there = seen[:, :, None].expand(-1, -1, self.places.shape[0]).flatten(1)
        first, likely = self.nothing.expand(count, -1), None  # to be attended to where no picture is shown
        if self.phrases:
            mean = flat_grids.sum(1) / there.sum(1, keepdim=True).clamp(min=1)
            likely = self.guess(torch.cat([mean, flat_grids.amax(1)], dim=1))
            first = first + self.tell(likely.sigmoid())
        memory = torch.cat([first[:, None], (grids + self.order[:views, None]).flatten(1, 2)], dim=1)
        return memory, torch.cat([there.new_ones(count, 1), there], dim=1).long(), likely

    def _stack(self, prompt: Prompt, rng: np.random.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Pictures of a prompt, (view, 3, row, column), zero-padded, with mask."""
        images = shown_images(prompt)[: self.views]
        has_view = torch.zeros(self.views, dtype=torch.bool)
        has_view[: len(images)] = True
        empty = torch.zeros(3, self.encoder.edge, self.encoder.edge)
        pictures = [self.encoder.picture(image, rng, self.augment) for image in images]
        return torch.stack([*pictures, *[empty] * (self.views - len(images))]), has_view

    def _make(self, words: Sequence[str], phrases: Sequence[str]) -> None:
        """Makes the networks; `words` only of a decoder made anew."""
        self.encoder = Encoder(self.encoder_name, self.encoder_weights, self.encoder_options, self.image_size)
        self.encoder.requires_grad_(not self.freeze)
        self.decoder = self._decoder(words)
        self.decoder.config.pad_token_id = None  # it would warn of padding, which only follows the ends of reports
        longest = getattr(self.decoder.config, "max_position_embeddings", None) or self.max_tokens
        if self.max_tokens > longest:
            raise UsageError(
                f"model.max_tokens is {self.max_tokens}, but the decoder reads {longest}; set it to at most that"
            )
        self.phrases, self.packed = Phrases(phrases), packed(words, phrases)
        width = int(self.decoder.config.hidden_size)
        self.join = nn.Linear(self.encoder.features, width)
        self.nothing = nn.Parameter(torch.zeros(width))
        self.places = nn.Parameter(torch.randn(self.encoder.places, width) * 0.02)
        self.order = nn.Parameter(torch.randn(self.views, width) * 0.02)
        if phrases:
            self.guess = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, len(phrases)))
            self.tell = nn.Linear(len(phrases), width)
        self.train(self.training)

    def _decoder(self, words: Sequence[str]) -> Any:
        transformers = import_optional("transformers")
        wanted = self.decoder_wanted
        model: Any = transformers.AutoModelForCausalLM
        attending = {"add_cross_attention": True, "is_decoder": True}
        try:
            if isinstance(wanted, str):
                tokenizer = transformers.AutoTokenizer.from_pretrained(wanted, trust_remote_code=False)
                self.words = Pieces(tokenizer)
                config = transformers.AutoConfig.from_pretrained(wanted, trust_remote_code=False, **attending)
                return model.from_pretrained(wanted, config=config, trust_remote_code=False)
            self.words = Words(words)
            marks = {"bos_token_id": self.words.begin, "eos_token_id": self.words.end}
            settings = {"vocab_size": len(self.words), **marks, **attending, **wanted}
            return model.from_config(transformers.AutoConfig.for_model(**settings))
        except UserError:
            raise
        except Exception as error:  # the library fails in many ways over settings, files and the network
            raise UserError(f"model.decoder: {wanted!r} cannot be made by transformers ({error})") from error


class Encoder(nn.Module):
    """Image encoder whose last features are used, with its preprocessing.

    Raises:
        UserError: there is no such encoder, its library is missing, or it cannot be loaded.
    """

    def __init__(self, name: str, weights: str | None, options: Mapping[str, Any], size: int | None) -> None:
        super().__init__()
        self._clip = name.startswith(OPEN_CLIP)
        self._mean, self._deviation = (0.5,) * 3, (0.25,) * 3  # of encoders that were never trained
        if self._clip:
            self.network, own = self._open_clip(name.removeprefix(OPEN_CLIP), weights)
        else:
            self.network, own = self._timm(name, weights, options, size)
        if not callable(getattr(self.network, "forward_intermediates", None)):
            raise UserError(f"model.encoder: {name!r} does not give its features; name another encoder")
        self.edge = size or own
        with torch.inference_mode():
            self.places, self.features = self.eval()(torch.zeros(1, 3, self.edge, self.edge)).shape[1:]

    def forward(self, pictures: Tensor) -> Tensor:
        """Features of pictures, (picture, 3, row, column), as (picture, place, feature)."""
        network: Any = self.network
        if self._clip:
            grid = network.forward_intermediates(pictures, indices=1, output_fmt="NCHW")["image_intermediates"][-1]
        else:
            (grid,) = network.forward_intermediates(pictures, indices=1, intermediates_only=True, output_fmt="NCHW")
        features: Tensor = grid.flatten(2).transpose(1, 2)
        return features

    def picture(self, image: Image, rng: np.random.Generator | None = None, strength: float = 0) -> Tensor:
        """Returns a picture as encoder input, float32, (3, row, column).

        For training, `rng` crops the edges and varies the contrast, by the part `strength` of them at most.

        Raises:
            CaseError: it is no picture of 1 to 4 channels.
        """
        from PIL import Image as Pictures
        from PIL import ImageOps

        picture = as_picture(image)
        longest = max(picture.size)
        square = ImageOps.pad(picture, (longest, longest))
        left, top, right, bottom = np.zeros(4) if rng is None else rng.uniform(0, strength * longest, 4)
        box = (left, top, longest - right, longest - bottom)
        scaled = square.resize((self.edge, self.edge), Pictures.Resampling.BILINEAR, box)
        pixels = np.asarray(scaled, np.float32) / 255
        if rng is not None:
            pixels = pixels * (1 + rng.uniform(-strength, strength)) + rng.uniform(-strength, strength)
        plain = (pixels - np.array(self._mean)) / np.array(self._deviation)
        return torch.from_numpy(np.ascontiguousarray(plain.transpose(2, 0, 1), np.float32))

    def _timm(
        self, name: str, weights: str | None, options: Mapping[str, Any], size: int | None
    ) -> tuple[nn.Module, int]:
        path = None if weights is None else Path(weights).expanduser()
        network, settings = build_timm(name, path, options, None if size is None else (size, size))
        if path is not None or name.startswith(HUB):
            self._mean, self._deviation = settings["mean"], settings["std"]
        return network, int(settings["input_size"][-1])

    def _open_clip(self, name: str, weights: str | None) -> tuple[nn.Module, int]:
        folder = Path(name).expanduser()
        if folder.is_dir():
            clip = OpenClip(checkpoint=str(folder))
        elif weights is not None and Path(weights).expanduser().exists():
            clip = OpenClip(model_name=name, checkpoint=weights)
        else:
            clip = OpenClip(model_name=name, pretrained=weights)
        clip.load()
        visual = clip.clip.visual
        self._mean = getattr(visual, "image_mean", None) or self._mean
        self._deviation = getattr(visual, "image_std", None) or self._deviation
        size = visual.image_size
        return visual, int(size[0] if isinstance(size, Sequence) else size)
