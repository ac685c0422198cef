from .differences import MOST as MOST, differences_html as differences_html
from .folder import CASES as CASES, LEADERBOARD as LEADERBOARD, claim as claim, copy_static as copy_static
from .folder import plain as plain, write_script as write_script, write_text as write_text
from .lists import PICKS as PICKS, TaskCases as TaskCases, by_task as by_task, check_wanted as check_wanted
from .pages import Report as Report, Showing as Showing, task_titles as task_titles, viewer as viewer
