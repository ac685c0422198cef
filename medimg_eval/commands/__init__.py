"""The commands, one module each; `front` finds out which one is meant."""

COMMANDS = {
    "fit": "train a model on a task; its best checkpoint is then a model for test",
    "test": "ask a model, store its answers, score them, print the table (the quickstart when no task is named)",
    "score": "score stored predictions again, without loading a model",
    "table": "print the paper table of any number of runs, and write it as Markdown, LaTeX, CSV and HTML",
    "compare": "test whether models differ by more than chance: significance maps, a baseline, groups of cases",
    "agree": "validate a judge of answers against human labels: agreement, kappa, ICC, AUROC",
    "list": "show the tasks, models, metrics and suites there are",
    "phantom": "write made-up patients in the real formats, with the truth known by construction",
    "check": "read every case of a task, or every image of a folder, and say what is wrong with it",
    "download": "fetch an open benchmark from the hub, resumed and verified, or print how it is got",
}
