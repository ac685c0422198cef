"""The tokenizer and the config of a tiny BERT, as a repository of the hub holds them."""

import json
from pathlib import Path

WORDS = (
    "mild pulmonary edema is seen no pleural effusion or pneumothorax heart enlarged with a pacemaker lungs are clear "
    "of consolidation the . , cardiomegaly stable"
)


def save_vocabulary(folder: Path, **config) -> Path:
    """Writes `config.json` and `vocab.txt`; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(WORDS.split())]
    words += [one for letter in letters for one in (letter, f"##{letter}")]
    vocabulary = list(dict.fromkeys(words))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    settings = {
        "model_type": "bert",
        "vocab_size": len(vocabulary),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 512,
        "initializer_range": 0.5,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(settings))
    return folder
