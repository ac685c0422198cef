from .agent import InspectAgent as InspectAgent
from .messages import as_chat_messages as as_chat_messages
