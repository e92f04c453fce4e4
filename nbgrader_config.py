"""This repository as an nbgrader course: `solutions/` is the source, `notebooks/` the release.

What nbgrader itself writes while somebody works here (a gradebook, submissions, feedback) stays in `.course/`, which
git ignores. A course with students lives in a folder of its own.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent
WORK = ROOT / ".course"
WORK.mkdir(exist_ok=True)
(WORK / ".gitignore").write_text("*\n", encoding="utf-8")

c = get_config()  # noqa: F821, nbgrader defines it

c.CourseDirectory.course_id = "recovery-lab"
c.CourseDirectory.root = str(ROOT)
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "notebooks"
c.CourseDirectory.submitted_directory = str(WORK / "submitted")
c.CourseDirectory.autograded_directory = str(WORK / "autograded")
c.CourseDirectory.feedback_directory = str(WORK / "feedback")
c.CourseDirectory.solution_directory = str(WORK / "solution")
c.CourseDirectory.db_url = f"sqlite:///{WORK / 'gradebook.db'}"

c.Execute.startup_timeout = 120  # seconds for a kernel to come up; on a busy machine the usual minute is too short
c.Execute.timeout = 120  # seconds for one cell; a step is judged in a few, on a busy machine in more
