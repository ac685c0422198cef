"""Objects that are no stack of slices: enhanced images, stills and clips, SEG, RTSTRUCT, RTDOSE."""
