"""One grader per kind of label. A grader compares the labels of one question with the dataset's annotations."""
