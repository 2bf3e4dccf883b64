"""Select columns for a model by fitting it: any scikit-learn estimator."""
