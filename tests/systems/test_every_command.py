"""Every command of the list of published systems is run by a test, in the words of the list."""

from tests.commands.test_system_rows import CHAINS as IMAGES
from tests.commands.test_system_runs import RUNNABLE
from tests.helpers.system_chains import COMMANDS
from tests.systems.test_encoder_commands import CHAINS as ENCODERS
from tests.systems.test_film_commands import CHAINS as FILMS
from tests.systems.test_question_commands import CHAINS as QUESTIONS
from tests.systems.test_table_commands import CHAINS as TABLES


def test_each_command_is_run():
    run = {*RUNNABLE}.union(*(chains.lines for chains in (IMAGES, ENCODERS, FILMS, QUESTIONS, TABLES)))
    assert sorted({*COMMANDS} - run) == []
