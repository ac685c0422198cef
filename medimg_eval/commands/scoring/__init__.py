"""What `score` makes of files that exist: masks, pictures, boxes, points, classes, answers, reports.

Each module turns the config of the command into one `Candidate` for each model; `frame` does what all have in common.
"""
