"""From coded frames to numbers: codecs, stored samples, modality and VOI lookup tables, colours."""
