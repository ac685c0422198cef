"""The benchmarks' own rules of taking an answer from an output, so that published numbers can be reproduced.

Each rule does what its authors' released code does, its faults included: its docstring says whose it is, where it is
weak, and what becomes of outputs in which it finds nothing. The rules are written anew, from what that code does. A
config names its benchmark's rule as `authors: {extraction: NAME}`; `extraction=authors` uses it, and `extraction=NAME`
uses any. Our own rule is `medimg_eval.metrics.answers.extraction`.

A rule takes (output, options, question, more) and returns the answer or None. Where the published scoring is looser
than equality, the answer is a text that equals every right answer which that scoring accepts.
"""
