"""A family that is not ours: cells are counted in fields of a microscope, and a remark says how many there are."""
