from .task import RegistrationTask as RegistrationTask
