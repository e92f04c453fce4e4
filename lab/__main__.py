"""`python3 -m lab …` from a fresh clone: makes the environment where it is missing, then hands over to `lab.cli`.

Standard library only, and in the syntax of Python 3.6, so that an old Python gets as far as being told that it is old.
"""

import sys

from lab.bootstrap import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
