"""What `score` makes of files that exist: masks, pictures, boxes, points, classes, answers, reports."""
