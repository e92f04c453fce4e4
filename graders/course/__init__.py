"""A course of many learners: reading what they hand in, judging it, and the bridge to nbgrader."""
