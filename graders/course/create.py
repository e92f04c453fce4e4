"""Making a course folder: nbgrader's settings, the notebooks to release, a secret, and a page for the instructor."""

from __future__ import annotations

import shutil
from pathlib import Path

from graders import registry
from graders.course import secret

CONFIG = '''"""nbgrader's settings for this course. The stock commands read them, and so does the formgrader."""

from pathlib import Path

COURSE = Path(__file__).resolve().parent

c = get_config()  # noqa: F821, nbgrader defines it

c.CourseDirectory.course_id = "recovery-lab"
c.CourseDirectory.root = str(COURSE)
c.CourseDirectory.source_directory = "source"  # the notebooks with their solutions: edit these
c.CourseDirectory.release_directory = "release"  # what students get, made by `nbgrader generate_assignment`
c.CourseDirectory.submitted_directory = "submitted"  # submitted/<student>/<assignment>/
c.CourseDirectory.autograded_directory = "autograded"
c.CourseDirectory.feedback_directory = "feedback"
# Two commands at once wait for each other instead of failing with "database is locked".
c.CourseDirectory.db_url = f"sqlite:///{COURSE / 'gradebook.db'}?timeout=60"

# A submission is a stranger's files. This reads them without following links or waiting for pipes, repairs the
# notebooks from the release, and keeps nbgrader from copying anything else. Please leave it in.
c.Autograde.exporter_class = "graders.course.nbgrader_parts.Repairing"
c.OverwriteCells.add_missing_cells = True

# The judge writes the points into the test cells. There is no Execute: no kernel is started.
c.Autograde.autograde_preprocessors = [
    "graders.course.nbgrader_parts.Judge",
    "nbgrader.preprocessors.SaveAutoGrades",
    "graders.course.nbgrader_parts.LeaveToPerson",  # what the judge could not decide
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
'''

README = """# A course with Recovery Lab

A folder for nbgrader: all of its commands run here, and the formgrader does when JupyterLab is started here, both from
the activated environment of the lab.

1. `nbgrader generate_assignment receiver` makes `release/receiver/` from `source/receiver/`. Hand that out.
2. Put what students hand in under `submitted/<student>/receiver/`: their notebooks, and their `client.py` if they have
   one. A step counts when its notebook was handed in.
3. `nbgrader autograde receiver` judges. Whatever is in a submission, it stops nobody else's grading.
   `autograded/<student>/receiver/client.py` is the program that was judged.
4. In the formgrader, read the answers in words, and what the judge left to a person because it could not tell.
5. `nbgrader generate_feedback receiver` writes `feedback/`; `nbgrader export` writes the grades.
6. `recovery-lab report receiver` writes a page about the whole class; `--anonymous` leaves out the names.

A new round for everybody: `nbgrader autograde receiver --force`. What has not changed is not judged again.
A run that was ended half-way leaves a folder in `autograded/` that the next one takes for done: `--force` helps, too.

## The secret

`.secret` decides which inputs each student's program is tried with, and they differ from student to student. Keep a
copy: with another secret the same work may be tried differently. Nobody but you may read it, nor `.verdicts/`, where
verdicts are kept. Neither ever goes into a release or into feedback: where a rule fails, students read what it says of
inputs that everybody may know, or else only which promise is broken. `.gitignore` leaves out everything about students.

Learners can read the judge's rules; only the inputs are hidden.
"""

GITIGNORE = """.secret
.verdicts/
.graded/
gradebook.db*
submitted/
autograded/
feedback/
grades.csv
class-report.html
.ipynb_checkpoints/
"""


class CannotCreate(Exception):
    """There is no course now; the message says why in one line."""


def create(folder: Path) -> list[str]:
    """Make a course in `folder`, which is new or empty. Returns the names of what is in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CannotCreate(f"{folder} is not empty: name a new folder")
        for unit in registry.units():
            target = folder / "source" / unit.name
            target.mkdir(parents=True)
            for notebook in sorted((unit.reference_path.parent / unit.name).glob("*.ipynb")):
                shutil.copyfile(notebook, target / notebook.name)
        for name, content in {"nbgrader_config.py": CONFIG, "README.md": README, ".gitignore": GITIGNORE}.items():
            (folder / name).write_text(content, encoding="utf-8")
        secret.create(folder)
    except OSError as error:
        raise CannotCreate(f"{error.filename or folder}: {error.strerror}") from error
    return sorted(path.name for path in folder.iterdir())
