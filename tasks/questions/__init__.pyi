from .agent import AgentQuestionTask as AgentQuestionTask
from .agent_steps import AgentStepTask as AgentStepTask
from .attacked import AttackedQuestionTask as AttackedQuestionTask
from .clinic import ClinicQuestionTask as ClinicQuestionTask
from .consultation import ConsultationQuestionTask as ConsultationQuestionTask
from .chats import DialogueQuestionTask as DialogueQuestionTask
from .judge_questions import JudgeQuestion as JudgeQuestion, MAX_NEW_TOKENS as MAX_NEW_TOKENS, rounds as rounds
from .meetings import MeetingQuestionTask as MeetingQuestionTask, meeting_course as meeting_course
from .staged import StagedQuestionTask as StagedQuestionTask
from .task import QuestionTask as QuestionTask
from .team import TeamQuestionTask as TeamQuestionTask
