"""Where the runs of a sweep are trained: in this process, in processes of their own, or on a Ray cluster."""
