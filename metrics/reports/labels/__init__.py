"""Labels that a labeler reads in reports, scored: taxonomies, averages, and the metrics declared of them."""
