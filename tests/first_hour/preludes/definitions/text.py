"""Reports, and what a model wrote."""

references = ["No pleural effusion. The heart is normal.", "Mild edema of the left lung."]
predictions = ["Heart size is normal. No effusion.", "Mild edema."]
