"""From a tree of files to volumes: which files belong together, in which order, on which grid; an index remembers."""
