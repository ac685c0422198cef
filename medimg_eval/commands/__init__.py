"""The commands, one module each; `front` finds out which one is meant."""

COMMANDS = {
    "fit": "train a model on a task; its best checkpoint is then a model for test",
    "test": "ask a model, store its answers, score them, print the table (the quickstart when no task is named)",
    "predict": "ask a model about images without a truth: masks, DICOM-SEG, reports, answers, boxes, classes",
    "embed": "compute features of a task's images by an encoder, once, into a store that runs share",
    "label": "read labels in reports by a language model, in any taxonomy and language, into a table that tasks read",
    "score": "score files: masks, pictures, boxes, points, classes, answers, reports; or a run without its model",
    "import": "make runs of what others logged: lm-eval, lmms-eval, VLMEvalKit, MedEvalKit, inspect, HELM, nnU-Net",
    "export": "write runs as inspect, lm-eval, VLMEvalKit, nnU-Net, ReXrank, CheXpert, Croissant and others take them",
    "plan": "how many cases a claim needs; fix endpoints, analysis and data in a file with a hash and signatures",
    "monitor": "control chart of one metric over months or runs: limits, and which rules are violated",
    "table": "print the paper table of any number of runs, and write it as Markdown, LaTeX, CSV and HTML",
    "compare": "test whether models differ by more than chance: significance maps, a baseline, groups of cases",
    "report": "write a folder of pages that opens from disk: tables, cases, images with overlays, answers, differences",
    "fairness": "show how models serve groups of cases: worst group, gap, ratio, equity-scaled values, tests",
    "confidence": "how sure models are: calibration, temperature and Platt scaling, conformal sets with their coverage",
    "unknown": "whether what a model says, or features, tell unknown inputs from known ones; the drop in performance",
    "rank": "rank models over data sets: mean ranks and their test, consensus, how stable ranks are",
    "items": "analyse the items of tasks: difficulty, discrimination, likely label errors, hints of contamination",
    "figure": "draw scores for a paper: box, forest, ROC, critical difference and others, as PDF, PNG and CSV",
    "agree": "validate a judge against human labels, or our report labels against CheXbert: agreement, kappa, ICC",
    "published": "compute published numbers again from what authors released: published, ours, difference, its kind",
    "list": "show what there is: tasks, models, metrics, suites, published systems",
    "phantom": "write made-up patients in the real formats, with the truth known by construction",
    "check": "read every case of a task, or every image of a folder, and say what is wrong; or what metrics lack",
    "utility": "train on real and synthetic cases, test on real ones: what synthetic cases are worth, with intervals",
    "phi_scan": "find what still identifies a patient: in headers, side-cars and names of files, or in written reports",
    "readers": "write a blinded form for a reader study of real and generated images, or score what came back",
    "download": "fetch an open benchmark, or a metric's weights, from the hub, resumed; or print how it is got",
}

MODULES = {"import": "import_logs", "label": "products.label", "monitor": "products.monitor", "plan": "products.plan"}
"""Commands whose module is not called like them, or lies in a room."""

POSITIONAL = {"published": "name", "list": "what"}
"""Commands that take one plain word -> the key that it stands for."""

PAIRS = {"report": ("compare",)}
"""Commands with keys that take a list, and may be written as KEY=A,B where nothing is swept."""
