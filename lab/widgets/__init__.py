"""What learners look at and press: each widget is one .py and one .js, side by side. None of them changes a verdict."""
