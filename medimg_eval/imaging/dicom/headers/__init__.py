"""What a header tells, without its pixels: elements scanned quickly, facts on acquisition, factors of uptake values."""
