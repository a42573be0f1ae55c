"""What is predicted, from which targets, with which loss and metrics: one file a task."""
