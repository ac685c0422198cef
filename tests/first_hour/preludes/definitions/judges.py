"""What GREEN's model replied."""

reply = """[Clinically Significant Errors]:
(a) False report of a finding in the candidate: 1. effusion
[Clinically Insignificant Errors]:
(a) False report of a finding in the candidate: 0.
[Matched Findings]:
2. edema; cardiomegaly
"""

ratings = [[1, 2, 3, 3], [1, 2, 4, 3]]
