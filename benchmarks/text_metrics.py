"""What metrics of words take, and what they give, beside the packages whose numbers they reproduce.

    python benchmarks/text_metrics.py [--out RESULTS.json] [--peer-python PYTHON] [--pairs 5000] [--repeats 3]

Pairs of made-up reports of about 120 words are scored by `medimg_eval.metrics.text_scores`, then by pycocoevalcap,
sacreBLEU, rouge-score and NLTK, where they are installed or where `--peer-python` names the Python of an environment
that has them. Both sides take turns; of each the least CPU time of a few turns counts, from texts to numbers, on one
thread. Ratios say how much less CPU time ours takes. Compare ratios, not seconds.
"""

import argparse
import importlib.util
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

OURS = {
    "BLEU-1 to 4": ("bleu@1", "bleu@2", "bleu@3", "bleu@4"),
    "BLEU, 13a, exp": ("bleu_13a_exp@4",),
    "ROUGE-L (COCO)": ("rouge_l_coco",),
    "ROUGE-1, 2, L": ("rouge_1", "rouge_2", "rouge_l"),
    "ROUGE-1, 2, L (stems)": ("rouge_1_stem", "rouge_2_stem", "rouge_l_stem"),
    "CIDEr-D": ("cider_d",),
    "METEOR (exact, stem)": ("meteor_no_synonyms",),
}
PEERS = {
    "BLEU-1 to 4": "pycocoevalcap",
    "BLEU, 13a, exp": "sacrebleu",
    "ROUGE-L (COCO)": "pycocoevalcap",
    "ROUGE-1, 2, L": "rouge_score",
    "ROUGE-1, 2, L (stems)": "rouge_score",
    "CIDEr-D": "pycocoevalcap",
    "METEOR (exact, stem)": "nltk",
}
SENTENCES = (
    "The heart is {size} in size, with {contour} mediastinal contours.",
    "No pleural effusion or pneumothorax is seen.",
    "There is a {degree} {side} pleural effusion, {change} since the examination of {date}.",
    "The lungs are {clear} without focal consolidation.",
    "{degree} pulmonary edema with cephalization of vessels is {change}.",
    "A nodule of {size_mm} mm projects over the {side} upper lobe (image {number}).",
    "The endotracheal tube ends {number}.{number} cm above the carina.",
    "Bibasilar opacities may reflect atelectasis or, less likely, pneumonia.",
    "Degenerative changes of the thoracic spine are {degree} and {change}.",
    "A {side} internal jugular catheter ends in the superior vena cava; no kink is seen.",
)
CHOICES = {
    "size": ("normal", "top normal", "mildly enlarged", "moderately enlarged"),
    "contour": ("stable", "unremarkable", "widened"),
    "degree": ("small", "mild", "moderate", "severe", "Large"),
    "side": ("left", "right"),
    "change": ("unchanged", "increased", "decreased", "new"),
    "clear": ("clear", "well expanded", "hyperinflated"),
}


def make_pairs(number: int) -> list[tuple[str, str]]:
    """References, and copies of them in which words are lost, changed and moved, or reports of other patients."""
    rng = random.Random(0)  # noqa: S311 - texts, not secrets

    def report() -> str:
        filled = {name: rng.choice(options) for name, options in CHOICES.items()}
        said = [
            rng.choice(SENTENCES).format(
                **filled,
                date=f"{rng.randint(1, 12)}/{rng.randint(1, 28)}",
                size_mm=rng.randint(3, 60),
                number=rng.randint(1, 9),
            )
            for _ in range(rng.randint(9, 14))
        ]
        return " ".join(said)

    def damaged(text: str) -> str:
        words = [word for word in text.split() if rng.random() > 0.1]
        for at in range(len(words) - 1):
            chance = rng.random()
            if chance < 0.1:
                words[at] = rng.choice(("seen", "opacity", "effusions", f"w{rng.randint(0, 4000)}"))
            elif chance < 0.15:
                words[at], words[at + 1] = words[at + 1], words[at]
        return " ".join(words)

    pairs = []
    for _ in range(number):
        right = report()
        pairs.append((right, damaged(right) if rng.random() < 0.6 else report()))
    return pairs


def timed(score: Callable[[], list[float]]) -> dict[str, Any]:
    start = time.process_time()
    values = score()
    return {"seconds": time.process_time() - start, "values": values}


def ours(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """CPU seconds and values of each family of metrics here."""
    from medimg_eval.metrics import available, text_scores

    available()
    right, said = map(list, zip(*pairs, strict=True))
    return {
        family: timed(lambda names=names: list(text_scores(right, said, names).values.values()))
        for family, names in OURS.items()
    }


def theirs(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """The same by the packages that are there."""
    right, said = map(list, zip(*pairs, strict=True))
    found = {}
    if importlib.util.find_spec("pycocoevalcap"):
        found |= coco(right, said)
    if importlib.util.find_spec("sacrebleu"):
        import sacrebleu

        found["BLEU, 13a, exp"] = timed(lambda: [sacrebleu.corpus_bleu(said, [right]).score / 100])
    if importlib.util.find_spec("rouge_score"):
        found["ROUGE-1, 2, L"] = timed(lambda: rouge(right, said, stems=False))
        found["ROUGE-1, 2, L (stems)"] = timed(lambda: rouge(right, said, stems=True))
    if importlib.util.find_spec("nltk"):
        found["METEOR (exact, stem)"] = timed(lambda: [meteor(right, said)])
    return found


def coco(right: list[str], said: list[str]) -> dict[str, Any]:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    references = {at: [text] for at, text in enumerate(right)}
    given = {at: [text] for at, text in enumerate(said)}
    return {
        "BLEU-1 to 4": timed(lambda: [float(one) for one in Bleu(4).compute_score(references, given, verbose=0)[0]]),
        "ROUGE-L (COCO)": timed(lambda: [float(Rouge().compute_score(references, given)[0])]),
        "CIDEr-D": timed(lambda: [float(Cider().compute_score(references, given)[0])]),
    }


def rouge(right: list[str], said: list[str], *, stems: bool) -> list[float]:
    from rouge_score.rouge_scorer import RougeScorer

    kinds = ["rouge1", "rouge2", "rougeL"]
    scorer = RougeScorer(kinds, use_stemmer=stems)
    scores = [scorer.score(reference, text) for reference, text in zip(right, said, strict=True)]
    return [sum(one[kind].fmeasure for one in scores) / len(scores) for kind in kinds]


class NoSynonyms:
    """Stands where NLTK looks words up in WordNet, whose data it does not bring."""

    def synsets(self, word: str) -> list[Any]:
        return []


def meteor(right: list[str], said: list[str]) -> float:
    import re

    from nltk.translate.meteor_score import meteor_score

    words = re.compile("[a-z0-9]+")
    scores = [
        meteor_score([words.findall(reference.lower())], words.findall(text.lower()), wordnet=NoSynonyms())
        for reference, text in zip(right, said, strict=True)
    ]
    return sum(scores) / len(scores)


def versions() -> dict[str, str]:
    names = ("numpy", "pycocoevalcap", "sacrebleu", "rouge-score", "nltk")
    return {name: metadata.version(name) for name in names if importlib.util.find_spec(name.replace("-", "_"))}


def turn(python: str, side: str, texts: Path) -> dict[str, Any]:
    """One side in a process of its own."""
    ran = subprocess.run(
        [python, "-W", "ignore", __file__, "--side", side, "--texts", str(texts)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    read: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return read


def best(turns: list[dict[str, Any]]) -> dict[str, Any]:
    families = turns[0]["found"]
    return {family: min((one["found"][family] for one in turns), key=lambda row: row["seconds"]) for family in families}


def show(results: dict[str, Any]) -> None:
    print(
        f"{results['pairs']:,} pairs, {results['words'][0]:.0f} words beside {results['words'][1]:.0f}; CPU seconds\n"
    )
    print(f"{'':24}{'here':>8}{'peer':>8}{'ratio':>8}  largest difference of values")
    for family, row in results["families"].items():
        peer = f"{row['peer_seconds']:8.2f}{row['ratio']:8.1f}  {row['difference']:.1e}" if "peer" in row else ""
        print(f"{family:24}{row['seconds']:8.2f}{peer}  {row.get('peer', '')}")
        print(f"{'':24}{' '.join(f'{value:.5f}' for value in row['values'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("--texts", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        pairs = [tuple(pair) for pair in json.loads(given.texts.read_text(encoding="utf-8"))]
        found = {"ours": ours, "theirs": theirs}[given.side](pairs)
        print(json.dumps({"versions": versions(), "found": found}))
        return
    pairs = make_pairs(given.pairs)
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.json"
        texts.write_text(json.dumps(pairs), encoding="utf-8")
        turns = [
            (turn(sys.executable, "ours", texts), turn(given.peer_python, "theirs", texts))
            for _ in range(given.repeats)
        ]
    mine, peers = best([one for one, _ in turns]), best([other for _, other in turns])
    families = {}
    for family, row in mine.items():
        families[family] = {"metrics": OURS[family], **row}
        if family in peers:
            peer = peers[family]
            families[family] |= {
                "peer": PEERS[family],
                "peer_seconds": peer["seconds"],
                "peer_values": peer["values"],
                "ratio": peer["seconds"] / row["seconds"],
                "difference": max(abs(a - b) for a, b in zip(row["values"], peer["values"], strict=True)),
            }
    words = [sum(len(pair[side].split()) for pair in pairs) / len(pairs) for side in (0, 1)]
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), **turns[0][1]["versions"]}
    results = {"pairs": len(pairs), "words": words, "repeats": given.repeats, "machine": machine, "families": families}
    show(results)
    if given.out:
        given.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
