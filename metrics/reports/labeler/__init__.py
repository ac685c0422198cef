"""Our own rules for English chest X-ray reports: words for findings, negation and doubt, lengths, sides and change.

`labeler` is the way in; the face of `medimg_eval.metrics.reports` exports what it offers.
"""
