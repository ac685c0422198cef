from .differences import MOST as MOST, differences_html as differences_html
from .lists import PICKS as PICKS, TaskCases as TaskCases, by_task as by_task, check_wanted as check_wanted
from .pages import Report as Report, Showing as Showing, task_titles as task_titles, viewer as viewer
