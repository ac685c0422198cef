from .film_labels import WorkflowTask as WorkflowTask
