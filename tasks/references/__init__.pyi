from .arms import RetrievalQuestionTask as RetrievalQuestionTask
from .retriever import Retriever as Retriever
